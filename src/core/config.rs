//! The deployment's settings (DESIGN.md section 8). A value that cannot be used is one clear error that names it.

use thiserror::Error;

use super::time::Millis;

/// Settings that the session machine and its shell follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `LEASE_MS`: how long a producer may be silent.
    pub lease: Millis,
    /// `HEARTBEAT_MS`: a silent response gets a comment frame this often.
    pub heartbeat: Millis,
    /// `BATCH_WAIT_MS`: least time between flushes of a streamed run.
    pub batch_wait: Millis,
    /// `LIVE_WAIT_MS`: how long a parked reader waits for a run.
    pub live_wait: Millis,
    /// `MAX_REQUEST_BYTES`: largest request body, in bytes.
    pub max_request_bytes: usize,
    /// `ALLOWED_ORIGINS`: origins that browsers may call from.
    pub allowed_origins: Vec<String>,
    /// `TEST_SEAMS`: routes that only tests need.
    pub test_seams: bool,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name} must be {expected}")]
pub struct InvalidSetting {
    /// Name of the variable.
    pub name: &'static str,
    /// What it takes.
    pub expected: &'static str,
}

impl Settings {
    /// Reads the settings; `read` gives a variable's text.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first variable that cannot be used.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let millis = |name: &'static str, default: u64, least: u64| {
            let Some(text) = read(name).filter(|text| !text.trim().is_empty()) else { return Ok(Millis::new(default)) };
            text.trim()
                .parse::<u64>()
                .ok()
                .filter(|ms| (least..=MAX_TIMER).contains(ms))
                .map(Millis::new)
                .ok_or(InvalidSetting { name, expected: "a whole number of milliseconds, at most 2147483647" })
        };
        let bytes = match read("MAX_REQUEST_BYTES").filter(|text| !text.trim().is_empty()) {
            None => 10 * 1024 * 1024,
            Some(text) => text.trim().parse::<usize>().ok().filter(|bytes| (1..=100 << 20).contains(bytes)).ok_or(
                InvalidSetting { name: "MAX_REQUEST_BYTES", expected: "a whole number of bytes, at most 104857600" },
            )?,
        };
        let origins = read("ALLOWED_ORIGINS").unwrap_or_default();
        Ok(Self {
            lease: millis("LEASE_MS", 30_000, 1)?,
            heartbeat: millis("HEARTBEAT_MS", 15_000, 1)?,
            batch_wait: millis("BATCH_WAIT_MS", 50, 0)?,
            live_wait: millis("LIVE_WAIT_MS", 30_000, 1)?,
            max_request_bytes: bytes,
            allowed_origins: origins.split([',', ' ']).filter(|o| !o.is_empty()).map(str::to_owned).collect(),
            test_seams: read("TEST_SEAMS").is_some_and(|text| text == "1"),
        })
    }
}

/// Longest timer of the runtime, in ms.
const MAX_TIMER: u64 = 2_147_483_647;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_design() {
        let settings = Settings::read(|_| None).unwrap();
        assert_eq!(settings.lease, Millis::new(30_000));
        assert_eq!(settings.heartbeat, Millis::new(15_000));
        assert_eq!(settings.batch_wait, Millis::new(50));
        assert_eq!(settings.max_request_bytes, 10_485_760);
        assert!(settings.allowed_origins.is_empty() && !settings.test_seams);
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        for (name, value) in
            [("LEASE_MS", "0"), ("LEASE_MS", "soon"), ("HEARTBEAT_MS", "-1"), ("MAX_REQUEST_BYTES", "10 MB")]
        {
            let error = Settings::read(|asked| (asked == name).then(|| value.to_owned())).unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().starts_with(name));
        }
    }
}
