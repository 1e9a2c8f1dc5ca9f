use super::*;
use crate::dialect::ui::message::validate_message;

fn fold(chunks: Value) -> Fold {
    on(Fold::new(&MessageId::new("m")), chunks)
}

fn on(mut fold: Fold, chunks: Value) -> Fold {
    for chunk in chunks.as_array().unwrap() {
        fold.apply(&Chunk::parse(chunk.clone()).unwrap()).unwrap_or_else(|error| panic!("{error}: {chunk}"));
        if let Some(message) = fold.message() {
            validate_message(&message).unwrap_or_else(|error| panic!("{error}: {message}"));
        }
    }
    fold
}

fn parts(chunks: Value) -> Value {
    fold(chunks).message().map_or(json!([]), |message| message["parts"].clone())
}

fn refused(fold: &mut Fold, chunk: Value) -> FoldError {
    let before = fold.message();
    let error = fold.apply(&Chunk::parse(chunk).unwrap()).unwrap_err();
    assert_eq!(fold.message(), before);
    error
}

#[test]
fn text_and_reasoning_grow_and_close() {
    let chunks = json!([
        {"type": "start", "messageId": "m2"},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "0", "providerMetadata": {"p": {"a": 1}}},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "Hel"},
        {"type": "reasoning-delta", "id": "0", "delta": "hm", "providerMetadata": {"p": {"b": 2}}},
        {"type": "text-delta", "id": "0", "delta": "lo", "providerMetadata": {"flat": 1}},
        {"type": "text-end", "id": "0"},
        {"type": "text-start", "id": "0"},
        {"type": "finish-step"},
    ]);
    assert_eq!(
        fold(chunks).message().unwrap(),
        json!({"id": "m2", "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "id": "0", "text": "hm", "state": "streaming", "providerMetadata": {"p": {"b": 2}}},
            {"type": "text", "text": "Hello", "state": "done"},
            {"type": "text", "text": "", "state": "streaming"},
        ]})
    );
}

#[test]
fn what_is_not_open_is_refused() {
    let mut fold = fold(json!([
        {"type": "text-start", "id": "t"},
        {"type": "text-end", "id": "t"},
        {"type": "text-start", "id": "u"},
        {"type": "finish-step"},
    ]));
    for kind in ["text-end", "text-delta", "reasoning-delta", "reasoning-end"] {
        for id in ["t", "u"] {
            let error = refused(&mut fold, json!({"type": kind, "id": id, "delta": "x"}));
            assert_eq!(error, FoldError::NotOpen { kind: kind.into(), id: id.into() });
        }
    }
    for kind in ["tool-output-available", "tool-output-error", "tool-output-denied", "tool-approval-request"] {
        let chunk = json!({"type": kind, "toolCallId": "c", "output": 1, "errorText": "e", "approvalId": "a"});
        assert_eq!(refused(&mut fold, chunk), FoldError::NoCall("c".into()));
    }
    let delta = json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"});
    assert_eq!(refused(&mut fold, delta), FoldError::NoInput("c".into()));
    let response = json!({"type": "tool-approval-response", "approvalId": "a", "approved": true});
    assert_eq!(refused(&mut fold, response), FoldError::NoApproval("a".into()));
    assert_eq!(
        refused(&mut fold, json!({"type": "file", "url": "u"})),
        FoldError::Malformed { kind: "file".into(), key: "mediaType" }
    );
}

#[test]
fn lifecycle_unknown_and_terminal_chunks_leave_no_part() {
    let chunks = json!([
        {"type": "run_started"}, {"type": "step_start", "step": 1, "attemptId": "a"}, {"type": "text_delta", "delta": "x"},
        {"type": "error", "errorText": "e"}, {"type": "abort"}, {"type": "data-x", "data": 1, "transient": true},
        {"type": "message-metadata", "messageMetadata": {"a": 1}},
    ]);
    assert_eq!(fold(chunks).message(), None);
}

#[test]
fn sources_files_and_data() {
    let chunks = json!([
        {"type": "source-url", "sourceId": "s", "url": "u", "title": null},
        {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"},
        {"type": "file", "url": "u", "mediaType": "m", "filename": "not a key"},
        {"type": "reasoning-file", "url": "u", "mediaType": "m"},
        {"type": "custom", "kind": "a.b"},
        {"type": "steering-message", "id": "q", "parts": [{"type": "text", "text": "x"}]},
        {"type": "data-x", "id": "d", "data": 1, "transient": false},
        {"type": "data-x", "data": 2},
        {"type": "data-y", "id": "d", "data": 3},
        {"type": "data-x", "id": "d", "data": null},
    ]);
    assert_eq!(
        parts(chunks),
        json!([
            {"type": "source-url", "sourceId": "s", "url": "u"},
            {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"},
            {"type": "file", "mediaType": "m", "url": "u"},
            {"type": "reasoning-file", "mediaType": "m", "url": "u"},
            {"type": "custom", "kind": "a.b"},
            {"type": "steering-message", "id": "q", "parts": [{"type": "text", "text": "x"}]},
            {"type": "data-x", "id": "d", "data": null, "transient": false},
            {"type": "data-x", "data": 2},
            {"type": "data-y", "id": "d", "data": 3},
        ])
    );
}

#[test]
fn metadata_merges_deeply() {
    let fold = fold(json!([
        {"type": "start", "messageMetadata": {"a": {"x": 1}, "l": [1]}},
        {"type": "message-metadata", "messageMetadata": null},
        {"type": "message-metadata", "messageMetadata": {"a": {"y": 2}, "l": [2], "constructor": {"z": 1}}},
        {"type": "finish", "messageMetadata": {"b": null}},
    ]));
    assert_eq!(fold.metadata(), Some(&json!({"a": {"x": 1, "y": 2}, "l": [2], "b": null})));
}

fn call(more: &[Value]) -> Value {
    let mut chunks =
        vec![json!({"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": {"q": 1}})];
    chunks.extend_from_slice(more);
    parts(Value::Array(chunks))
}

#[test]
fn tool_state_input_streaming() {
    let start = json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "x", "title": "X", "providerMetadata": {"p": {}}});
    assert_eq!(
        parts(json!([start])),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "input-streaming", "title": "X", "callProviderMetadata": {"p": {}}}])
    );
    let chunks = json!([
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "x", "dynamic": true},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"city\": \"Ber"},
    ]);
    assert_eq!(
        parts(chunks),
        json!([{"type": "dynamic-tool", "toolCallId": "c", "toolName": "x", "state": "input-streaming", "input": {"city": "Ber"}, "rawInput": "{\"city\": \"Ber"}])
    );
}

#[test]
fn tool_state_input_available() {
    assert_eq!(
        call(&[]),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": {"q": 1}}])
    );
    let chunks = json!([
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "x"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"q"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": null, "providerExecuted": true},
    ]);
    assert_eq!(
        parts(chunks),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "input-available", "input": null, "providerExecuted": true}])
    );
}

#[test]
fn tool_states_of_approvals() {
    let request =
        json!({"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", "signature": "s", "reason": "r"});
    assert_eq!(
        call(std::slice::from_ref(&request)),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "approval-requested", "input": {"q": 1},
            "approval": {"id": "p", "signature": "s", "requestReason": "r"}}])
    );
    let response =
        |approved| json!({"type": "tool-approval-response", "approvalId": "p", "approved": approved, "reason": "ok"});
    assert_eq!(
        call(&[request.clone(), response(true)])[0]["approval"],
        json!({"id": "p", "signature": "s", "requestReason": "r", "approved": true, "reason": "ok"})
    );
    let denied = call(&[request.clone(), response(false), json!({"type": "tool-output-denied", "toolCallId": "c"})]);
    assert_eq!(denied[0]["state"], "output-denied");
    assert_eq!(denied[0]["approval"]["approved"], false);
    let output = json!({"type": "tool-output-available", "toolCallId": "c", "output": 1});
    assert_eq!(call(&[request.clone(), output.clone()])[0]["approval"]["approved"], true);
    assert_eq!(call(&[request.clone(), response(false), output.clone()])[0].get("approval"), None);
    let again = call(&[output, request]);
    assert_eq!(again[0]["state"], "approval-requested");
    assert_eq!(again[0].get("output"), None);
    assert_eq!(
        call(&[json!({"type": "tool-output-denied", "toolCallId": "c"})])[0]["approval"],
        json!({"id": "c", "approved": false})
    );
}

#[test]
fn tool_state_output_available() {
    let first = json!({"type": "tool-output-available", "toolCallId": "c", "output": "half", "preliminary": true});
    assert_eq!(
        call(std::slice::from_ref(&first)),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": {"q": 1}, "output": "half", "preliminary": true}])
    );
    let last =
        json!({"type": "tool-output-available", "toolCallId": "c", "output": null, "providerMetadata": {"p": {}}});
    assert_eq!(
        call(&[first, last]),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": {"q": 1}, "output": null, "resultProviderMetadata": {"p": {}}}])
    );
}

#[test]
fn tool_state_output_error() {
    let error = json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "boom"});
    assert_eq!(
        call(&[error]),
        json!([{"type": "tool-x", "toolCallId": "c", "state": "output-error", "input": {"q": 1}, "errorText": "boom"}])
    );
    let chunks = json!([
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "x", "dynamic": true},
        {"type": "tool-input-error", "toolCallId": "c", "toolName": "x", "input": "{bad", "errorText": "no JSON"},
    ]);
    assert_eq!(
        parts(chunks),
        json!([{"type": "dynamic-tool", "toolCallId": "c", "toolName": "x", "state": "output-error", "input": "{bad", "errorText": "no JSON"}])
    );
}

#[test]
fn an_output_finds_its_call_in_an_earlier_step() {
    let chunks = json!([
        {"type": "start-step"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "x", "input": 1},
        {"type": "start-step"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "y", "input": 2},
        {"type": "start-step"},
        {"type": "tool-output-available", "toolCallId": "c", "output": 3},
    ]);
    let parts = parts(chunks);
    assert_eq!(parts[1]["state"], "input-available");
    assert_eq!(parts[3]["output"], 3);
}

#[test]
fn a_continued_message_keeps_what_it_had() {
    let message = json!({"id": "a", "role": "assistant", "createdAt": 1, "metadata": {"k": 1}, "parts": [
        {"type": "tool-x", "toolCallId": "c", "state": "approval-responded", "input": 1, "approval": {"id": "p", "approved": true}},
    ]});
    let fold = on(
        Fold::continuing(message),
        json!([
            {"type": "tool-output-available", "toolCallId": "c", "output": 2},
            {"type": "start-step"},
        ]),
    );
    assert_eq!(
        fold.message().unwrap(),
        json!({"id": "a", "role": "assistant", "createdAt": 1, "metadata": {"k": 1}, "parts": [
            {"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": 1, "output": 2, "approval": {"id": "p", "approved": true}},
            {"type": "step-start"},
        ]})
    );
}

/// Two attempts of step 1 after a committed step 0 with a pending call.
fn retried() -> Vec<Value> {
    vec![
        json!({"type": "tool-input-available", "toolCallId": "old", "toolName": "x", "input": 1}),
        json!({"type": "step_start", "step": 1, "attemptId": "a1"}),
        json!({"type": "text-start", "id": "t", "attemptId": "a1"}),
        json!({"type": "text-delta", "id": "t", "delta": "first", "attemptId": "a1"}),
        json!({"type": "tool-output-available", "toolCallId": "old", "output": 2, "attemptId": "a1"}),
        json!({"type": "step_start", "step": 1, "attemptId": "a2"}),
        json!({"type": "text-start", "id": "t", "attemptId": "a2"}),
        json!({"type": "text-delta", "id": "t", "delta": "late", "attemptId": "a1"}),
        json!({"type": "text-delta", "id": "t", "delta": "second", "attemptId": "a2"}),
        json!({"type": "text-end", "id": "t", "attemptId": "a2"}),
    ]
}

#[test]
fn a_new_attempt_of_a_step_replaces_the_old_one_but_results_stay() {
    for committed in ["a2", "", "never seen"] {
        let mut chunks = retried();
        chunks.push(json!({"type": "step_committed", "committedAttemptId": committed}));
        assert_eq!(
            parts(Value::Array(chunks)),
            json!([
                {"type": "tool-x", "toolCallId": "old", "state": "output-available", "input": 1, "output": 2},
                {"type": "text", "text": "second", "state": "done"},
            ])
        );
    }
}

#[test]
fn the_commit_may_name_an_earlier_attempt() {
    let mut chunks = retried();
    chunks.push(json!({"type": "step_committed", "committedAttemptId": "a1"}));
    chunks.push(json!({"type": "text-start", "id": "t", "attemptId": "a2"}));
    assert_eq!(parts(Value::Array(chunks))[1], json!({"type": "text", "text": "first", "state": "streaming"}));
}

#[test]
fn the_next_step_keeps_the_last_one() {
    let chunks = json!([
        {"type": "step_start", "step": 1, "attemptId": "a"},
        {"type": "start-step", "attemptId": "a"},
        {"type": "step_committed", "committedAttemptId": "a"},
        {"type": "step_start", "step": 1, "attemptId": "b"},
        {"type": "start-step", "attemptId": "b"},
        {"type": "step_start", "step": 2, "attemptId": "c"},
        {"type": "start-step", "attemptId": "c"},
    ]);
    assert_eq!(parts(chunks).as_array().unwrap().len(), 3);
}

#[test]
fn reset_step_drops_the_parts_of_the_step() {
    let chunks = json!([
        {"type": "start-step"}, {"type": "text-start", "id": "a"}, {"type": "text-end", "id": "a"},
        {"type": "start-step"}, {"type": "text-start", "id": "b"}, {"type": "reset-step"}, {"type": "text-start", "id": "b"},
    ]);
    assert_eq!(parts(chunks).as_array().unwrap().len(), 4);
}
