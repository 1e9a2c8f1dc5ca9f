use super::*;
use proptest::prelude::*;
use serde_json::json;

/// What came of a body: the chunks' types, the outcome, the failure's code.
type Read = (Vec<String>, Option<Outcome>, Option<Code>);

fn read(pieces: &[&[u8]]) -> Read {
    let mut stream = RouteStream::new(true);
    let (mut kinds, mut code) = (Vec::new(), None);
    let mut take = |batch: Batch| {
        kinds.extend(batch.chunks.iter().map(|chunk| chunk.kind().to_owned()));
        code = code.or(batch.failure.map(|failure| failure.code));
    };
    for piece in pieces {
        take(stream.push(piece));
    }
    if !stream.is_finished() {
        take(stream.end());
    }
    (kinds, stream.outcome(), code)
}

fn sse(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn of(kinds: &[&str]) -> String {
    let chunks: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
    sse(&chunks)
}

fn ended(kinds: &[&str], outcome: Outcome) -> Read {
    (kinds.iter().map(|kind| (*kind).to_owned()).collect(), Some(outcome), None)
}

fn failed(kinds: &[&str], code: Code) -> Read {
    (kinds.iter().map(|kind| (*kind).to_owned()).collect(), None, Some(code))
}

#[test]
fn every_end_is_what_it_is() {
    let done = "data: [DONE]\n\n";
    for (body, expected) in [
        (of(&["start", "finish"]) + done, ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start", "finish"]), ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start", "finish", "data-late"]) + done, ended(&["start", "data-late", "finish"], Outcome::Completed)),
        (of(&["finish", "start", "finish"]) + done, ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start"]) + done, ended(&["start"], Outcome::Completed)),
        (of(&["start", "finish", "abort"]), ended(&["start"], Outcome::Interrupted)),
        (of(&["start"]) + done + &of(&["late"]), ended(&["start"], Outcome::Completed)),
        (of(&["start", "abort", "late"]) + done, ended(&["start"], Outcome::Interrupted)),
        (of(&["start", "error", "late"]) + done, failed(&["start"], Code::ProviderError)),
        (of(&["start"]), failed(&["start"], Code::ProviderStreamEnded)),
        (done.to_owned(), failed(&[], Code::ProviderStreamEnded)),
        (String::new(), failed(&[], Code::ProviderStreamEnded)),
        (": stream-open\n\n".to_owned(), failed(&[], Code::ProviderStreamEnded)),
        (of(&["start"]) + "data: {\"type\":\"text", failed(&["start"], Code::ProviderStreamEnded)),
        (of(&["start"]) + "data: {\"type\":\"finish\"}", ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start", "finish"]) + "data: {\"oops\":\n\n", ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start", "finish"]) + "data: oops\n\n" + &of(&["late"]), ended(&["start", "finish"], Outcome::Completed)),
        (of(&["start", "finish", "error"]), failed(&["start"], Code::ProviderError)),
    ] {
        assert_eq!(read(&[body.as_bytes()]), expected, "{body}");
    }
}

#[test]
fn what_is_no_stream_of_chunks_is_invalid() {
    for body in [
        "<!doctype html><p>Hello",
        "\u{feff}\n  <html>",
        "{\"hello\":1}",
        "[]",
        "data: oops\n\n",
        "data: 1\n\n",
        "data: null\n\n",
        "data: {\"type\":1}\n\n",
        "data: {\"choices\":[]}\n\n",
    ] {
        assert_eq!(read(&[body.as_bytes()]), failed(&[], Code::ProviderStreamInvalid), "{body}");
    }
    assert_eq!(read(&[b"data: \xFF\n\n"]), failed(&[], Code::ProviderStreamInvalid));
    let refused = br#"{"error":{"code":"rate_limit_exceeded","message":"slow down"}}"#;
    assert_eq!(read(&[refused]), failed(&[], Code::ProviderRateLimited), "a document is classified");
}

#[test]
fn a_page_without_an_end_is_not_read_on() {
    let mut stream = RouteStream::new(true);
    let line = "<p>".repeat(1_000);
    let failures = (0..1_000).filter_map(|_| stream.push(line.as_bytes()).failure).count();
    assert_eq!(failures, 1);
}

#[test]
fn chunks_pass_as_they_are() {
    let chunk = json!({"type": "hologram", "a": {"b": [null, 1.5, "ä"]}, "runId": "theirs"});
    let batch = RouteStream::new(true).push(sse(std::slice::from_ref(&chunk)).as_bytes());
    assert_eq!(batch.chunks, [Chunk::parse(chunk).unwrap()]);
}

#[test]
fn metadata_keeps_its_order_around_a_held_finish() {
    let body = sse(&[
        json!({"type": "finish", "messageMetadata": {"a": 1}}),
        json!({"type": "message-metadata", "messageMetadata": {"a": 2}}),
        json!({"type": "finish", "finishReason": "length", "messageMetadata": {"a": 3}}),
    ]);
    let mut stream = RouteStream::new(true);
    let mut chunks = stream.push(body.as_bytes()).chunks;
    chunks.extend(stream.end().chunks);
    let said: Vec<_> =
        chunks.iter().map(|chunk| (chunk.kind(), chunk.get("messageMetadata").unwrap()["a"].clone())).collect();
    let metadata = "message-metadata";
    assert_eq!(said, [(metadata, json!(1)), (metadata, json!(2)), ("finish", json!(3))]);
}

#[test]
fn names_and_comments_mean_nothing() {
    let body = ": keep-alive\n\nevent: error\nid: 1\ndata: {\"type\":\"start\"}\n\ndata:\n\ndata: [DONE]\n\n";
    assert_eq!(read(&[body.as_bytes()]), ended(&["start"], Outcome::Completed));
}

#[test]
fn the_words_of_an_error_part_reach_clients_whole_and_the_log_without_keys() {
    let text = "Your plan has no more messages; the key sk-proj-123456 is used up";
    let body = sse(&[json!({"type": "error", "errorText": text})]);
    let failed = |forwards| RouteStream::new(forwards).push(body.as_bytes()).failure.unwrap();
    for (forwards, words) in [(true, Some(text)), (false, None)] {
        let failure = failed(forwards);
        assert_eq!((failure.code, failure.words.as_deref()), (Code::ProviderError, words));
        assert!(failure.internal.contains("no more messages") && !failure.internal.contains("sk-proj"), "{failure}");
    }
    for silent in [json!({"type": "error"}), json!({"type": "error", "errorText": " "})] {
        let failure = RouteStream::new(true).push(sse(&[silent]).as_bytes()).failure.unwrap();
        assert_eq!((failure.code, failure.words), (Code::ProviderError, None));
    }
}

#[test]
fn a_refusal_has_its_own_words_and_its_class() {
    let headers = [("retry-after-ms".to_owned(), "7".to_owned())];
    let refused = |forwards, status, body: &str| {
        RouteStream::new(forwards).refused(
            status,
            Some("application/json"),
            Some((&headers, UnixMillis::new(0))),
            body.as_bytes(),
        )
    };
    let failure = refused(true, 429, r#"{"error":"Daily limit reached"}"#);
    assert_eq!((failure.code, failure.retry_after_ms), (Code::ProviderRateLimited, Some(7)));
    assert_eq!(failure.words.as_deref(), Some("Daily limit reached"));
    assert!(failure.internal.starts_with("the route answered 429: "), "{failure}");
    assert_eq!(refused(false, 429, r#"{"error":"Daily limit reached"}"#).words, None);
    let fault = refused(true, 500, r#"{"error":"stack trace"}"#);
    assert_eq!((fault.code, fault.words), (Code::ProviderUnavailable, None), "a fault of the route is not told");
}

#[test]
fn silence_ends_an_answer_that_was_whole_and_fails_another() {
    let silence = Millis::new(9);
    for (kinds, outcome, code) in [
        (vec!["start", "finish"], Some(Outcome::Completed), None),
        (vec!["start"], None, Some(Code::ProviderTimeout)),
        (vec![], None, Some(Code::ProviderTimeout)),
    ] {
        let mut stream = RouteStream::new(true);
        stream.push(of(&kinds).as_bytes());
        let batch = stream.silent(silence);
        assert_eq!((stream.outcome(), batch.failure.map(|failure| failure.code)), (outcome, code), "{kinds:?}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!("data: {{\"type\":\"data-x\",\"data\":{open}{close}}}\n\ndata: [DONE]\n\n")
    };
    assert_eq!(read(&[nested(MAX_DEPTH - 1).as_bytes()]), ended(&["data-x"], Outcome::Completed));
    assert_eq!(read(&[nested(MAX_DEPTH).as_bytes()]), failed(&[], Code::ProviderStreamInvalid));
    assert_eq!(read(&[nested(20_000).as_bytes()]), failed(&[], Code::ProviderStreamInvalid));
    let mut large = b"data: \"".to_vec();
    large.resize(EventStream::MAX_EVENT_BYTES + 100, b'a');
    assert_eq!(read(&[&large]), failed(&[], Code::ProviderStreamInvalid));
}

#[test]
fn a_character_cut_between_two_deltas_is_one_character() {
    let chunk = |kind: &str, keys: &str| format!("data: {{\"type\":\"{kind}\",{keys}}}\n\n");
    let body = chunk("text-delta", r#""id":"t","delta":"a\ud83d""#)
        + &chunk("text-delta", r#""id":"t","delta":"\ude00b\ud83d""#)
        + &chunk("tool-input-delta", r#""toolCallId":"c","inputTextDelta":"{\"x\":\"\ud83d""#)
        + &chunk("tool-input-delta", r#""toolCallId":"c","inputTextDelta":"\ude00\"}""#)
        + &chunk("text-end", r#""id":"t""#)
        + &chunk("data-x", r#""data":"\ude00""#);
    let chunks = RouteStream::new(true).push(body.as_bytes()).chunks;
    let said: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| ["delta", "inputTextDelta", "data"].iter().find_map(|key| chunk.text(key)))
        .collect();
    assert_eq!(said, ["a", "😀b", "{\"x\":\"", "😀\"}", "\u{fffd}", "\u{fffd}"]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&[&bytes]);
    }

    #[test]
    fn cuts_change_nothing(
        kinds in prop::collection::vec(prop::sample::select(vec!["start", "text-delta", "finish", "abort", "error", "ä"]), 0..6),
        done in any::<bool>(),
        cuts in prop::collection::vec(0..300usize, 0..8),
    ) {
        let body = of(&kinds) + if done { "data: [DONE]\n\n" } else { "" };
        let bytes = body.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), read(&[bytes]));
    }
}
