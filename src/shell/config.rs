//! The deployment's configuration, read once for an object.

use std::cell::OnceCell;

use wasm_bindgen::{JsCast, JsValue};
use worker::Env;

use crate::core::config::Settings;
use crate::core::error::{Code, Failure};
use crate::dialect::ui::vocabulary::Floor;
use crate::model::agent::Agents;
use crate::session::deployment::Deployment;

/// Reads the variables. The failure names the variable, and the field within it, and quotes no value.
pub fn deployment(env: &Env) -> Result<Deployment, Failure> {
    let invalid = |text: String| Failure::new(Code::ConfigurationInvalid, text);
    let settings = settings(env).map_err(invalid)?;
    let agents = variable(env, "AGENTS").unwrap_or_else(|| r#"{"default":{"producer":"demo"}}"#.to_owned());
    let agents = Agents::parse(&agents).map_err(|error| error.failure())?;
    let floor = match variable(env, "CLIENT_FLOOR") {
        Some(text) => text.parse().map_err(|_| invalid("CLIENT_FLOOR must be a version such as 6.0.0".to_owned()))?,
        None => Floor::default(),
    };
    Ok(Deployment { settings, agents, floor })
}

thread_local! {
    /// A deployment's variables never change within an isolate, and reading them costs a dozen calls.
    static SETTINGS: OnceCell<Result<Settings, String>> = const { OnceCell::new() };
}

/// The settings alone, for the Worker.
pub fn settings(env: &Env) -> Result<Settings, String> {
    let read = || Settings::read(|name| variable(env, name)).map_err(|error| error.to_string());
    SETTINGS.with(|known| known.get_or_init(read).clone())
}

/// A variable or secret as text; a JSON variable as its JSON text.
pub fn variable(env: &Env, name: &str) -> Option<String> {
    let value = js_sys::Reflect::get(env.unchecked_ref::<JsValue>(), &JsValue::from_str(name)).ok()?;
    if value.is_undefined() || value.is_null() {
        return None;
    }
    let text = value.as_string().or_else(|| js_sys::JSON::stringify(&value).ok().map(String::from));
    // An empty variable is one that was not set.
    text.filter(|text| !text.trim().is_empty())
}
