//! Handles for tests, served only with `TEST_SEAMS=1`: a panic, the storage contract, failures of storage, rows per table, appends, a held
//! run's release, and another session followed to its end.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use web_sys::Request;
use worker::Response;

use super::host::Host;
use super::request::body;
use super::{answer, follower};
use crate::core::caller::Caller;
use crate::core::chunk::Chunk;
use crate::core::error::Code;
use crate::core::ids::{Cursor, Sequence, SessionId};
use crate::core::record::Record;
use crate::core::storage::contract::{Operation, perform as perform_operation};
use crate::core::storage::{RunRow, Storage};
use crate::dialect::cursor;
use crate::dialect::route::query_value;
use crate::dialect::wire::decode::EndStatus;
use crate::dialect::wire::follower::{Ending, FollowError, Follower};

/// Most chunks of one `append`.
const MAX_COUNT: usize = 10_000;

/// Performs the seam that `name` asks for.
pub async fn perform(host: &Rc<Host>, request: &Request, query: &str) -> Result<Response, Response> {
    let refuse = |words: &str| answer::explained(Code::ValidationError, words, Map::new());
    match query_value(query, "name").as_deref() {
        Some("panic") => {
            #[expect(clippy::panic, reason = "the panic is what the test asks for")]
            {
                panic!("asked for by a test");
            }
        }
        Some("release") => Ok(answer::json(200, &json!({ "released": host.release() }))),
        Some("counts") => {
            let counts = host.storage.counts().map_err(|error| answer::internal(&error))?;
            Ok(answer::json(200, &counts.into_iter().collect()))
        }
        Some("storage") => {
            let bytes = body(request, 16 << 20).await.map_err(|_| refuse("the body could not be read"))?;
            let operation: Operation =
                serde_json::from_slice(&bytes).map_err(|error| refuse(&format!("not an operation: {error}")))?;
            Ok(answer::json(200, &perform_operation(&*host.storage, &operation)))
        }
        Some("fail-storage") => {
            let faults = host.storage.connection().faults();
            let count = query_value(query, "count").and_then(|count| count.parse().ok()).unwrap_or(1);
            let kind = match query_value(query, "of").as_deref() {
                Some("statements") => &faults.statements,
                Some("writes") => &faults.writes,
                Some("transactions") => &faults.transactions,
                Some("behind-transaction") => &faults.behind_transaction,
                _ => return Err(refuse("of must be statements, writes, transactions or behind-transaction")),
            };
            kind.set(count);
            Ok(answer::json(200, &json!({ "count": count })))
        }
        Some("append") => {
            let bytes = body(request, 16 << 20).await.map_err(|_| refuse("the body could not be read"))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let count = match query_value(query, "count") {
                None => 1,
                Some(count) => count
                    .parse()
                    .ok()
                    .filter(|count| (1..=MAX_COUNT).contains(count))
                    .ok_or_else(|| refuse("count must be a whole number from 1 to 10000"))?,
            };
            append(host, text, count).await
        }
        Some("follow") => {
            let session = SessionId::parse(&query_value(query, "session").unwrap_or_default())
                .map_err(|error| refuse(&error.to_string()))?;
            let from = query_value(query, "fromSequence").map_or(Ok(Cursor::START), |text| cursor::parse(&text));
            let from = from.map_err(|error| refuse(&error.to_string()))?;
            let waits = query_value(query, "waitForLive").is_some_and(|value| value == "1");
            Ok(answer::json(200, &follow(host, &session, from, waits).await))
        }
        _ => Err(refuse("name must be panic, release, counts, storage, fail-storage, append or follow")),
    }
}

/// Follows another session, and answers how that ended and what came.
async fn follow(host: &Rc<Host>, session: &SessionId, from: Cursor, wait_for_live: bool) -> Value {
    let mut follower = Follower::new(from, wait_for_live);
    let (mut first, mut last, mut count, mut contiguous) = (None, None, 0_u64, true);
    let followed = follower::follow(&host.env, session, &mut follower, |sequence, _| {
        first = first.or(Some(sequence));
        contiguous &= sequence.before() == last.map_or(from, Sequence::cursor);
        last = Some(sequence);
        count = count.saturating_add(1);
    });
    let outcome = match followed.await {
        Ok(Ending::Ended(EndStatus::Completed)) => "completed",
        Ok(Ending::Ended(EndStatus::Paused)) => "paused",
        Ok(Ending::Ended(EndStatus::Interrupted)) => "interrupted",
        Ok(Ending::Failed(_)) => "failed",
        Err(FollowError::Truncated { .. }) => "truncated",
        Err(FollowError::Evicted { .. }) => "evicted",
        Err(FollowError::RunChanged { .. }) => "run_changed",
        Err(FollowError::Dropped { .. }) => "dropped",
        Err(FollowError::Absent) => "absent",
        Err(FollowError::Refused { .. }) => "refused",
    };
    json!({
        "outcome": outcome,
        "first": first,
        "last": last,
        "count": count,
        "contiguous": contiguous,
        "opens": follower.opens(),
        "caughtUp": follower.is_caught_up(),
    })
}

/// Appends `count` chunks that all say `text` to the live run, as one flush, and answers once they are durable, with the last one's sequence.
async fn append(host: &Rc<Host>, text: String, count: usize) -> Result<Response, Response> {
    let fence = host.session(|session| {
        session.authorise(&Caller::Anonymous).ok()?;
        session.run().filter(|run| run.status.is_live()).map(RunRow::fence)
    });
    let fence = fence.ok().flatten().ok_or_else(|| answer::error(Code::StateRunEnded))?;
    let chunk = Chunk::new("data-bench").with("data", Value::String(text)).with("transient", true);
    let records = vec![Record::Chunk { chunk, attempt: None }; count];
    let effects = host.write_with_room(|session| session.append(&fence, &records));
    let effects = effects.map_err(|error| answer::internal(&error))?.map_err(|error| answer::internal(&error))?;
    let sequence = host.session(|session| session.log().head()).map_err(|error| answer::internal(&error))?;
    host.persist(effects).map_err(|error| answer::internal(&error))?;
    host.settled_writes().await.map_err(|error| answer::internal(&error))?;
    Ok(answer::json(200, &json!({ "sequence": sequence })))
}
