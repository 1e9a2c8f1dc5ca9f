use super::*;
use serde_json::json;

fn begin(body: Value) -> Result<Begin, String> {
    Begin::parse(body.to_string().as_bytes()).map_err(|refusal| refusal.to_string())
}

fn message() -> Value {
    json!({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]})
}

#[test]
fn a_start_says_what_it_answers_and_in_which_language() {
    let said =
        begin(json!({"runId": "run 1", "owner": "o", "message": message(), "vocabulary": "ui", "requestKey": "k",
        "supersede": true, "leaseMs": 5000, "state": {"a": 1}, "other": 1}))
        .unwrap();
    assert_eq!(
        said,
        Begin {
            run: Some(RunId::new("run 1")),
            owner: Some("o".into()),
            messages: vec![message()],
            vocabulary: Vocabulary::Ui,
            request_key: Some(RequestKey::parse("k").unwrap()),
            supersede: true,
            lease: Some(Millis::new(5_000)),
            state: Some(json!({"a": 1})),
        }
    );
    let mut other = message();
    other["id"] = json!("other");
    let least = begin(json!({"vocabulary": "helix", "messages": [message(), other], "runId": null})).unwrap();
    assert_eq!((least.run, least.messages.len(), least.supersede), (None, 2, false));
    let odd = json!({"id": "x", "role": "tool", "content": "free"});
    assert!(begin(json!({"vocabulary": "opaque", "message": odd})).is_ok());
    assert!(begin(json!({"vocabulary": "ui"})).unwrap().messages.is_empty());
    let twice = begin(json!({"vocabulary": "ui", "messages": [message(), message()]}));
    assert_eq!(twice, Err(Refusal::Twice(1).to_string()));
}

#[test]
fn a_start_that_cannot_be_used_is_told_what_to_change() {
    for (body, words) in [
        (json!({}), "vocabulary must be ui, helix or opaque"),
        (json!({"vocabulary": "wire"}), "vocabulary must be ui, helix or opaque"),
        (json!({"vocabulary": "ui", "message": "hi"}), "messages[0] must be an object with a string id"),
        (json!({"vocabulary": "ui", "messages": [{"id": "a", "role": "user", "parts": []}]}), "messages[0]: parts: "),
        (json!({"vocabulary": "ui", "message": message(), "messages": []}), "message and messages cannot"),
        (json!({"vocabulary": "ui", "runId": "a::b"}), "runId must have"),
        (json!({"vocabulary": "ui", "runId": "a/b"}), "runId must have"),
        (json!({"vocabulary": "ui", "runId": 7}), "runId must be a string"),
        (json!({"vocabulary": "ui", "owner": ""}), "owner must be a string of 1 to 256 bytes"),
        (json!({"vocabulary": "ui", "leaseMs": 10}), "leaseMs must be between 1000 and 3600000"),
        (json!({"vocabulary": "ui", "leaseMs": "5000"}), "leaseMs must be a whole number"),
        (json!({"vocabulary": "ui", "supersede": 1}), "supersede must be true or false"),
        (json!({"vocabulary": "ui", "requestKey": "a b"}), "a request key has"),
        (json!({"vocabulary": "ui", "state": "x".repeat(2_000_000)}), "the state must not be larger"),
    ] {
        let refusal = begin(body).unwrap_err();
        assert!(refusal.starts_with(words), "{refusal}");
    }
    assert_eq!(Begin::parse(b"\xff"), Err(Refusal::NotJson));
    assert_eq!(Begin::parse(b"[]"), Err(Refusal::NotA("a JSON object")));
}

#[test]
fn a_commit_may_say_nothing() {
    let parse = |body: &[u8]| CommitBody::parse(body, Vocabulary::Ui);
    assert_eq!(parse(b" "), Ok(CommitBody::default()));
    let said = parse(br#"{"throughSequence":7,"messages":[],"state":null,"stepCount":2}"#).unwrap();
    assert_eq!(said.through.map(Cursor::get), Some(7));
    assert_eq!((said.messages, said.state, said.step_count), (Some(vec![]), Some(Value::Null), Some(2)));
    for body in
        [&br#"{"throughSequence":-1}"#[..], br#"{"throughSequence":9007199254740991}"#, br#"{"stepCount":4294967296}"#]
    {
        assert!(parse(body).is_err());
    }
}

#[test]
fn the_other_bodies() {
    assert_eq!(Renew::parse(b"").unwrap().lease, None);
    assert_eq!(Renew::parse(br#"{"leaseMs":1000}"#).unwrap().lease, Some(Millis::new(1_000)));
    let keys = |body: &str| object(body.as_bytes()).unwrap();
    let end = EndBody::read(&keys(r#"{"status":"interrupted","output":{"a":1},"usage":null}"#)).unwrap();
    assert_eq!((end.status, end.output, end.usage), (EndStatus::Interrupted, Some(json!({"a": 1})), None));
    assert!(EndBody::read(&keys("")).is_err());
    let code = |body: &str| FailBody::read(&keys(body)).unwrap().failure.code;
    assert_eq!(code(r#"{"error":{"code":"provider_rate_limited","message":"m"}}"#), Code::ProviderRateLimited);
    assert_eq!(code(r#"{"error":{"code":"producer_lost"}}"#), Code::ProducerLost);
    for other in
        [r#"{"error":"boom"}"#, r#"{"error":{"code":"state_already_running"}}"#, r#"{"error":{"code":"mine"}}"#]
    {
        assert_eq!(code(other), Code::ProducerFailed);
    }
    assert!(FailBody::read(&keys("{}")).is_err());
    let failure = FailBody::read(&keys(r#"{"error":{"message":"m","retryAfterMs":5}}"#)).unwrap().failure;
    assert_eq!((failure.internal.as_str(), failure.retry_after_ms), ("m", Some(5)));
    let pause = |body: &str| PauseBody::read(&keys(body));
    assert_eq!(pause("{}"), Ok(PauseBody { pending: None, kind: PauseKind::ClientTool }));
    let said = pause(r#"{"pending":["a",{"toolCallId":"b"}],"kind":"suspended_step_partial"}"#).unwrap();
    assert_eq!(said, PauseBody { pending: Some(vec!["a".into(), "b".into()]), kind: PauseKind::StepPartial });
    assert!(pause(r#"{"pending":[1]}"#).is_err());
    assert!(pause(r#"{"kind":"sleep"}"#).is_err());
}
