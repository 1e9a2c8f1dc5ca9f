//! What the shell reads of a request: headers, and a body that is refused before it is buffered.

use js_sys::Uint8Array;
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::{ReadableStreamDefaultReader, Request};

use super::incoming;

/// Why a body was not read.
pub enum BodyError {
    /// Larger than the limit, in bytes; the size when the client declared it.
    TooLarge(Option<usize>),
    /// The client went away.
    Broken,
}

/// A header's value.
pub fn header(request: &Request, name: &str) -> Option<String> {
    request.headers().get(name).ok().flatten()
}

/// Reads a body of at most `limit` bytes. A declared size above it is refused unread, an undeclared one as soon as it is passed.
pub async fn body(request: &Request, limit: usize) -> Result<Vec<u8>, BodyError> {
    let declared = header(request, "content-length").and_then(|text| text.trim().parse::<usize>().ok());
    let Some(stream) = request.body() else { return Ok(Vec::new()) };
    if let Some(size) = declared.filter(|size| *size > limit) {
        // Whoever stands in front may otherwise wait for the rest of the body before it passes the answer on.
        let _ = stream.cancel();
        return Err(BodyError::TooLarge(Some(size)));
    }
    if declared.is_some() {
        // The runtime holds the body to its declared length.
        let whole = request.array_buffer().map_err(|_| BodyError::Broken)?;
        return Ok(Uint8Array::new(&JsFuture::from(whole).await.map_err(|_| BodyError::Broken)?).to_vec());
    }
    let reader: ReadableStreamDefaultReader = stream.get_reader().unchecked_into();
    let mut bytes = Vec::new();
    while let Some(piece) = incoming::next(&reader).await.map_err(|_| BodyError::Broken)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > limit {
            let _ = reader.cancel();
            return Err(BodyError::TooLarge(None));
        }
    }
    Ok(bytes)
}
