//! The bytes of a chat response that follows Helix chunks.

use super::projector::Projector;
use crate::core::frame::{self, BadFrame};
use crate::dialect::ui::lens::Lens;
use crate::dialect::ui::response::{Projected, project, synthesise};
use crate::dialect::ui::vocabulary::Floor;

/// Appends a row of stored frames as chat shows them. Of several frames that one chunk becomes, the last has its sequence.
///
/// # Errors
/// [`BadFrame`] when the bytes are not stored frames.
pub fn project_helix(
    bytes: &[u8],
    projector: &mut Projector,
    floor: Floor,
    lens: &Lens,
    out: &mut Vec<u8>,
) -> Result<Projected, BadFrame> {
    let mut written = Projected::default();
    for stored in frame::split(bytes) {
        let stored = frame::decode_one(stored?)?;
        let mut seen = projector.project(&stored.chunk);
        let last = seen.pop();
        for chunk in seen {
            let Some(chunk) = lens.show(chunk) else { continue };
            written.content |= crate::dialect::ui::attempts::is_content(&chunk);
            synthesise(chunk, floor, out);
        }
        let one = project(last.into_iter().map(|chunk| (stored.sequence, chunk)), floor, lens, out);
        written.frames = written.frames.saturating_add(one.frames);
        written.finish |= one.finish;
        written.content |= one.content;
    }
    Ok(written)
}
