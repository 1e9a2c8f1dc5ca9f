//! The deployment's settings (DESIGN.md section 8). A value that cannot be used is one clear error that names it.

use std::ops::RangeInclusive;

use thiserror::Error;

use super::busy::Ways;
use super::retention::Policy;
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
    /// `RETENTION_MS`: how long the chunks of a finished run are kept.
    pub retention: Millis,
    /// `SESSION_TTL_MS`: an idle session deletes all it stores after this time.
    pub session_ttl: Option<Millis>,
    /// `MAX_SESSION_BYTES`: most bytes of chunks that a session keeps.
    pub max_session_bytes: u64,
    /// `MAX_READERS`: most open responses of a session.
    pub max_readers: usize,
    /// `READER_LAG_BYTES`: how far a live `/sse` reader may fall behind.
    pub reader_lag_bytes: u64,
    /// `READER_STALE_MS`: how long a reader may take nothing while there is something to take.
    pub reader_stale: Millis,
    /// `READER_MAX_AGE_MS`: how long a response may live.
    pub reader_max_age: Millis,
    /// `LOG_SESSION_IDS`: log lines name the session itself, not its hash.
    pub log_session_ids: bool,
    /// `RECOVERY`: whether a run whose object died is tried again.
    pub recovery: Recovery,
    /// `DETACHED_MS`: how long a run goes on that nobody follows.
    pub detached: Option<Millis>,
    /// `MAX_ATTEMPTS`: how often a step is tried.
    pub max_attempts: u32,
    /// `MAX_REQUEST_BYTES`: largest request body, in bytes.
    pub max_request_bytes: usize,
    /// `ON_BUSY`: what a send may do that finds a reply under way, where its agent does not say.
    pub on_busy: Ways,
    /// `MAX_QUEUED`: most messages that wait for their answer in a session.
    pub max_queued: usize,
    /// `ALLOWED_ORIGINS`: origins that browsers may call from.
    pub allowed_origins: Vec<String>,
    /// `PUBLIC_URL`: where the service is reached from outside, without a slash at its end.
    pub public_url: Option<String>,
    /// `TEST_SEAMS`: routes that only tests need.
    pub test_seams: bool,
}

/// What becomes of a run inside an object that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A new attempt of its uncommitted step.
    Retry,
    /// It fails.
    Fail,
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
        let number = |name: &'static str, default: u64, within: RangeInclusive<u64>, expected: &'static str| {
            let Some(text) = read(name).filter(|text| !text.trim().is_empty()) else { return Ok(default) };
            let number = text.trim().parse::<u64>().ok().filter(|number| within.contains(number));
            number.ok_or(InvalidSetting { name, expected })
        };
        let millis = |name, default, least| number(name, default, least..=MAX_TIMER, MS_OF_A_TIMER).map(Millis::new);
        let alarm = |name, default| number(name, default, 1..=TEN_YEARS_MS, MS_UP_TO_TEN_YEARS).map(Millis::new);
        let bytes = number("MAX_REQUEST_BYTES", 10 << 20, 1..=100 << 20, "a whole number of bytes, at most 104857600")?;
        let readers = number("MAX_READERS", 1_000, 1..=30_000, "a whole number from 1 to 30000")?;
        let attempts = number("MAX_ATTEMPTS", 3, 1..=100, "a whole number from 1 to 100")?;
        let queued = number("MAX_QUEUED", 8, 1..=1_000, "a whole number from 1 to 1000")?;
        let on_busy = Ways::parse(&read("ON_BUSY").unwrap_or_default()).map_err(|_| InvalidSetting {
            name: "ON_BUSY",
            expected: "refuse, interrupt or queue, or several of them",
        })?;
        let origins = read("ALLOWED_ORIGINS").unwrap_or_default();
        Ok(Self {
            lease: millis("LEASE_MS", 30_000, 1)?,
            heartbeat: millis("HEARTBEAT_MS", 15_000, 1)?,
            batch_wait: millis("BATCH_WAIT_MS", 50, 0)?,
            live_wait: millis("LIVE_WAIT_MS", 30_000, 1)?,
            retention: alarm("RETENTION_MS", DAY_MS)?,
            session_ttl: Some(alarm("SESSION_TTL_MS", 0)?).filter(|ttl| *ttl > Millis::default()),
            max_session_bytes: number("MAX_SESSION_BYTES", 1 << 30, 1 << 10..=9 << 30, BYTES_UP_TO_9_GB)?,
            max_readers: usize::try_from(readers).unwrap_or(usize::MAX),
            reader_lag_bytes: number("READER_LAG_BYTES", 8 << 20, 1..=9 << 30, BYTES_UP_TO_9_GB)?,
            reader_stale: millis("READER_STALE_MS", 60_000, 1)?,
            reader_max_age: millis("READER_MAX_AGE_MS", 3_600_000, 1)?,
            log_session_ids: read("LOG_SESSION_IDS").is_some_and(|text| text == "1"),
            recovery: match read("RECOVERY").as_deref().map(str::trim) {
                None | Some("" | "retry") => Recovery::Retry,
                Some("fail") => Recovery::Fail,
                Some(_) => return Err(InvalidSetting { name: "RECOVERY", expected: "retry or fail" }),
            },
            detached: Some(millis("DETACHED_MS", 0, 1)?).filter(|detached| *detached > Millis::default()),
            max_attempts: u32::try_from(attempts).unwrap_or(1),
            max_request_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            on_busy,
            max_queued: usize::try_from(queued).unwrap_or(usize::MAX),
            allowed_origins: origins.split([',', ' ']).filter(|o| !o.is_empty()).map(str::to_owned).collect(),
            public_url: read("PUBLIC_URL").filter(|text| !text.trim().is_empty()).map(address).transpose()?,
            test_seams: read("TEST_SEAMS").is_some_and(|text| text == "1"),
        })
    }

    /// What a session follows of them.
    pub fn policy(&self) -> Policy {
        Policy {
            lease: self.lease,
            retention: self.retention,
            ttl: self.session_ttl,
            max_bytes: self.max_session_bytes,
            detached: self.detached,
        }
    }
}

/// An address that further segments can be put behind.
fn address(text: String) -> Result<String, InvalidSetting> {
    let own = text.trim().trim_end_matches('/');
    let host = own.strip_prefix("https://").or_else(|| own.strip_prefix("http://")).unwrap_or_default();
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@' | '\\' | '"');
    if host.is_empty() || host.starts_with(['/', ':']) || host.contains(odd) {
        return Err(InvalidSetting { name: "PUBLIC_URL", expected: "an address such as https://chat.example.com" });
    }
    Ok(own.to_owned())
}

/// 24 hours, in ms.
const DAY_MS: u64 = 86_400_000;

const BYTES_UP_TO_9_GB: &str = "a whole number of bytes, at most 9663676416";

/// Longest timer of the runtime, in ms.
const MAX_TIMER: u64 = 2_147_483_647;

const MS_OF_A_TIMER: &str = "a whole number of milliseconds, at most 2147483647";

/// What waits for the object's alarm may wait longer than a timer can.
const TEN_YEARS_MS: u64 = 315_360_000_000;

const MS_UP_TO_TEN_YEARS: &str = "a whole number of milliseconds from 1 to 315360000000";

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
        assert_eq!(settings.retention, Millis::new(86_400_000));
        assert_eq!((settings.session_ttl, settings.max_session_bytes), (None, 1 << 30));
        assert_eq!((settings.max_readers, settings.reader_lag_bytes), (1_000, 8 << 20));
        assert_eq!((settings.reader_stale, settings.reader_max_age), (Millis::new(60_000), Millis::new(3_600_000)));
        assert_eq!((settings.max_attempts, settings.recovery, settings.detached), (3, Recovery::Retry, None));
        assert_eq!((&settings.on_busy, settings.max_queued), (&Ways::default(), 8));
        assert!(settings.allowed_origins.is_empty() && !settings.test_seams);
        assert_eq!(settings.public_url, None);
    }

    #[test]
    fn the_public_address_can_be_written_behind() {
        let with = |value: &str| Settings::read(|name| (name == "PUBLIC_URL").then(|| value.to_owned()));
        for (value, expected) in [
            ("https://chat.example.com", "https://chat.example.com"),
            (" http://127.0.0.1:8787/ ", "http://127.0.0.1:8787"),
            ("https://example.com/rejoin/", "https://example.com/rejoin"),
        ] {
            assert_eq!(with(value).unwrap().public_url.as_deref(), Some(expected));
        }
        assert_eq!(with(" ").unwrap().public_url, None);
        for value in [
            "chat.example.com",
            "https://",
            "https:///x",
            "ftp://a",
            "https://a?b",
            "https://u@a",
            "https://a b",
            "http://:80",
        ] {
            assert_eq!(with(value).unwrap_err().name, "PUBLIC_URL", "{value}");
        }
    }

    #[test]
    fn what_is_kept_may_be_kept_for_ten_years() {
        let with = |name: &'static str, value: &'static str| {
            Settings::read(move |asked| (asked == name).then(|| value.to_owned()))
        };
        let ten_years = Millis::new(TEN_YEARS_MS);
        assert_eq!(with("RETENTION_MS", "315360000000").unwrap().policy().retention, ten_years);
        assert_eq!(with("SESSION_TTL_MS", " 315360000000 ").unwrap().policy().ttl, Some(ten_years));
        for (name, value) in [("RETENTION_MS", "315360000001"), ("RETENTION_MS", "0"), ("SESSION_TTL_MS", "never")] {
            assert_eq!(with(name, value).unwrap_err(), InvalidSetting { name, expected: MS_UP_TO_TEN_YEARS });
        }
        let (max_bytes, name) = (4 << 20, "MAX_SESSION_BYTES");
        assert_eq!(with(name, "4194304").unwrap().policy().max_bytes, max_bytes);
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        for (name, value) in [
            ("LEASE_MS", "0"),
            ("LEASE_MS", "soon"),
            ("HEARTBEAT_MS", "-1"),
            ("MAX_REQUEST_BYTES", "10 MB"),
            ("RECOVERY", "maybe"),
            ("ON_BUSY", "wait"),
            ("MAX_QUEUED", "0"),
        ] {
            let error = Settings::read(|asked| (asked == name).then(|| value.to_owned())).unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().starts_with(name));
        }
    }
}
