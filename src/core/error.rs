//! Every failure that leaves the service: one table from code to status, retryability and safe words.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::redact::quote;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $retryable:literal, $message:literal;)*) => {
        /// Stable machine code of a failure (`spec/helix.md` section 7; category = the part before the first `_`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)*
        }

        impl Code {
            /// The code as it stands on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Every code.
            #[cfg(test)]
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// HTTP status of an answer that carries this code.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Whether the same request may succeed later.
            pub fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }

            /// Words that may reach a client: never the internal text.
            pub fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

codes! {
    /// A send while a run is running.
    StateAlreadyRunning = "state_already_running", 409, true, "A reply is already running in this session";
    /// A send while as many messages wait as may.
    StateQueueFull = "state_queue_full", 409, true, "Too many messages wait for their answer in this session";
    /// A message that waited and was taken out of the queue.
    StateQueueCleared = "state_queue_cleared", 409, true, "This message was not answered, because the reply before it was stopped; send it again";
    /// The session changed between plan and commit of a run start.
    StateRunStartConflict = "state_run_start_conflict", 409, false, "The run could not start";
    /// A request key that was used for another message.
    StateRequestKeyConflict = "state_request_key_conflict", 409, false, "This request key was used for another message";
    /// An answer to a call that says something else than the one that is held for it.
    StateAnswerConflict = "state_answer_conflict", 409, false, "This call was answered otherwise";
    /// A request key whose run ended before a later one began.
    StateRequestAlreadyCompleted = "state_request_already_completed", 409, false, "The run of this request key has ended, and another one followed";
    /// A write of a run that no longer holds the session.
    StateRunSuperseded = "state_run_superseded", 409, false, "This run was superseded by another one";
    /// A write of a run that has already ended.
    StateRunEnded = "state_run_ended", 409, false, "This run has already ended";
    /// A live run alone is larger than a session may be.
    StateSessionFull = "state_session_full", 409, false, "The reply is larger than this session can store";
    /// What a run said could not be stored, or what it answers not be read.
    StateStoreFailed = "state_store_failed", 503, true, "The conversation could not be stored; try again";
    /// Another process has claimed the run since.
    StateProducerFenced = "state_producer_fenced", 403, false, "Another process has claimed this run";
    /// A number is missing before the one that a producer sent.
    StateProducerGap = "state_producer_gap", 409, false, "A chunk is missing before this one";
    /// The requested continuation does not exist.
    StateNotResumable = "state_not_resumable", 409, true, "Read the snapshot and resume from it";
    /// No such session, or not yours.
    StateSessionNotFound = "state_session_not_found", 404, false, "Session not found";
    /// The conversation could not be read whole.
    StateHistoryIncomplete = "state_history_incomplete", 503, true, "The conversation could not be read";
    /// The cursor lies beyond the last stored chunk.
    StateCursorBeyondHead = "state_cursor_beyond_head", 409, false, "The cursor lies beyond the end of the log; read the snapshot and resume from it";
    /// The conversation went on since the snapshot that a reconnect names.
    StateSnapshotStale = "state_snapshot_stale", 409, true, "The conversation went on since this snapshot; read it again";
    /// The cursor lies below what retention has kept.
    Truncated = "TRUNCATED", 409, false, "The chunks after this cursor are gone; read the snapshot and resume from it";
    /// The stream ended without its terminal.
    TransportStreamDrop = "transport_stream_drop", 503, true, "The stream was interrupted; resume from your cursor";
    /// The object could not be reached.
    TransportError = "transport_error", 503, true, "The session could not be reached";
    /// Something in the request must be changed.
    ValidationError = "validation_error", 400, false, "The request is not valid";
    /// A tool result or an answer to an approval that cannot be taken (`spec/helix.md` E19: one fixed message, no detail).
    InvalidResult = "INVALID_RESULT", 400, false, "The tool result is not valid";
    /// The body is larger than the limit.
    ValidationPayloadTooLarge = "validation_payload_too_large", 413, false, "The request body is too large";
    /// A page of a foreign origin that acts.
    ValidationOrigin = "validation_origin_not_allowed", 403, false, "Pages of this origin may not do this";
    /// A body of a type that cannot be JSON.
    ValidationMediaType = "validation_media_type", 415, false, "Send the body as application/json";
    /// No such route.
    ValidationNotFound = "validation_not_found", 404, false, "No such route";
    /// The route exists, the method does not.
    ValidationMethod = "validation_method_not_allowed", 405, false, "Method not allowed";
    /// The deployment's configuration cannot be used.
    ConfigurationInvalid = "configuration_invalid", 500, false, "The service is not configured correctly";
    /// A fault of the service itself.
    FrameworkInternalError = "framework_internal_error", 500, false, "Internal error";
    /// The process that wrote the reply died.
    ProducerLost = "producer_lost", 503, true, "The reply was interrupted; try again";
    /// The producer outside reported a failure that may pass.
    ProducerFailed = "producer_failed", 503, true, "The reply failed; try again";
    /// The producer outside reported a failure that will not pass.
    ProducerGaveUp = "producer_gave_up", 500, false, "The reply failed";
    /// The producer outside could not be reached, or refused.
    ProducerUnreachable = "producer_unreachable", 503, true, "The producer could not be reached; try again";
    /// The model API asks to slow down.
    ProviderRateLimited = "provider_rate_limited", 503, true, "The model is busy; try again later";
    /// The model API refused the key.
    ProviderAuth = "provider_auth", 500, false, "The model refused the service's credentials";
    /// The account has no credit left.
    ProviderQuota = "provider_quota", 500, false, "The model's quota is used up";
    /// The model API is overloaded.
    ProviderOverloaded = "provider_overloaded", 503, true, "The model is overloaded; try again later";
    /// The conversation is longer than the model takes.
    ProviderContextLength = "provider_context_length", 400, false, "The conversation is too long for the model";
    /// The model API blocked the content.
    ProviderContentFilter = "provider_content_filter", 400, false, "The model declined this content";
    /// The model API did not accept the request.
    ProviderBadRequest = "provider_bad_request", 500, false, "The model did not accept the request";
    /// The model API could not be reached or failed.
    ProviderUnavailable = "provider_unavailable", 503, true, "The model could not be reached; try again";
    /// The model API reported an error inside its stream.
    ProviderError = "provider_error", 503, true, "The model reported an error; try again";
    /// The model answered with content of a kind that is not known here.
    ProviderContentUnsupported = "provider_content_unsupported", 500, false, "The model answered with content that cannot be shown";
    /// The model's stream is not what its API documents.
    ProviderStreamInvalid = "provider_stream_invalid", 503, true, "The model's answer could not be read; try again";
    /// The model's stream ended before it was finished.
    ProviderStreamEnded = "provider_stream_ended", 503, true, "The model's answer ended early; try again";
    /// The model was silent for longer than the lease.
    ProviderTimeout = "provider_timeout", 503, true, "The model stopped answering; try again";
}

impl Code {
    /// The part before the first `_`, as in `errorDetail.category`. The two codes that have no such part are named by what they are about.
    pub fn category(self) -> &'static str {
        match self {
            Self::Truncated => "state",
            Self::InvalidResult => "validation",
            _ => self.as_str().split('_').next().unwrap_or_default(),
        }
    }
}

/// Why a run failed: what clients may know, and apart from it what only the log line may say.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}: {}{}", code.as_str(), quote(internal), retry_after_ms.map(|ms| format!(" (retry after {ms} ms)")).unwrap_or_default())]
pub struct Failure {
    /// The class of the failure.
    pub code: Code,
    /// How long to wait before trying again, in ms, when the other side said so.
    pub retry_after_ms: Option<u64>,
    /// For the log line only; may quote the other side. What looks like a secret is left out where it is displayed.
    pub internal: String,
    /// What clients are told in the place of the code's own words, when they come from the app itself.
    pub words: Option<String>,
}

impl Failure {
    /// A failure with its internal explanation.
    pub fn new(code: Code, internal: impl Into<String>) -> Self {
        Self { code, retry_after_ms: None, internal: internal.into(), words: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_are_pinned() {
        assert_eq!(Code::StateAlreadyRunning.as_str(), "state_already_running");
        assert_eq!(Code::StateAlreadyRunning.status(), 409);
        assert!(Code::StateAlreadyRunning.retryable());
        assert_eq!(Code::StateSessionNotFound.message(), "Session not found");
        assert_eq!(Code::ProviderRateLimited.category(), "provider");
        assert_eq!(serde_json::to_string(&Code::Truncated).unwrap(), "\"TRUNCATED\"");
        assert_eq!((Code::InvalidResult.as_str(), Code::InvalidResult.status()), ("INVALID_RESULT", 400));
        assert!(!Code::InvalidResult.retryable());
    }

    #[test]
    fn every_category_is_one() {
        for code in Code::ALL {
            let known = ["state", "transport", "validation", "configuration", "framework", "producer", "provider"];
            assert!(known.contains(&code.category()), "{code:?}: {}", code.category());
        }
        assert_eq!(Code::Truncated.category(), "state");
    }
}
