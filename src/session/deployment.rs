//! Everything that the deployment says, read once for an object.

use crate::core::config::Settings;
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Agents;

/// What `wrangler.toml` and its overrides say.
#[derive(Debug)]
pub struct Deployment {
    /// The settings.
    pub settings: Settings,
    /// Who answers.
    pub agents: Agents,
    /// The oldest client to serve.
    pub floor: Floor,
}
