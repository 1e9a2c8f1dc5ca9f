//! The room `dialect::ui` as a filter: one JSON question a line on standard input, one JSON answer a line on standard output.
//!
//! * `{"fold": [chunk…], "from"?: message, "id"?: text}`: `{"message", "refused"?: place, "error"?: text}`; folding ends at the first
//!   chunk that is refused.
//! * `{"chunk": chunk, "floor": version}`: the frame, or `null`.
//! * `{"committed": message, "floor": version}`: the message, or `null`.
//! * `{"written": [chunk…], "ending": "stop" | "complete", "waits": flag}`: the message of a run in which a producer says these chunks and
//!   which ends so, as a chat route is sent it in a later request, or in the one that goes on with it (`waits`); `null` without parts.
//! * `{"shapes": true}`: every chunk type with its keys.

use std::error::Error;
use std::io::{BufRead, BufWriter, Write, stdin, stdout};

use rejoin::core::chunk::Chunk;
use rejoin::core::ids::{MessageId, RunId};
use rejoin::dialect::ui::fold::Fold;
use rejoin::dialect::ui::message::validate_message;
use rejoin::dialect::ui::sanitise::{sanitise, sanitise_message};
use rejoin::dialect::ui::vocabulary::{Floor, SHAPES, Shape, shape};
use rejoin::dialect::ui::writer::RunWriter;
use rejoin::model::ui_route::history::as_forwarded;
use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(stdout().lock());
    for line in stdin().lock().lines() {
        let mut question: Map<String, Value> = serde_json::from_str(&line?)?;
        let answer = answer(&mut question)?;
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

fn answer(question: &mut Map<String, Value>) -> Result<Value, Box<dyn Error>> {
    if let Some(Value::Array(chunks)) = question.shift_remove("fold") {
        return folded(chunks, question);
    }
    if let Some(Value::Array(chunks)) = question.shift_remove("written") {
        return written(chunks, question);
    }
    if question.contains_key("shapes") {
        return Ok(SHAPES.iter().chain(shape("data-")).map(described).collect());
    }
    let floor: Floor = question.get("floor").and_then(Value::as_str).unwrap_or_default().parse()?;
    if let Some(chunk) = question.shift_remove("chunk") {
        return Ok(sanitise(Chunk::parse(chunk)?, floor).map_or(Value::Null, Value::Object));
    }
    let message = question.shift_remove("committed").unwrap_or_default();
    Ok(sanitise_message(message, floor).unwrap_or_default())
}

fn folded(chunks: Vec<Value>, question: &mut Map<String, Value>) -> Result<Value, Box<dyn Error>> {
    let id = question.get("id").and_then(Value::as_str).unwrap_or_default();
    let id = MessageId::new(id);
    let mut fold = question.shift_remove("from").map_or_else(|| Fold::new(&id), Fold::continuing);
    let mut answer = Map::new();
    for (at, chunk) in chunks.into_iter().enumerate() {
        if let Err(error) = fold.apply(&Chunk::parse(chunk)?) {
            answer.insert("refused".into(), at.into());
            answer.insert("error".into(), error.to_string().into());
            break;
        }
    }
    let message = fold.message();
    if let Some(Err(invalid)) = message.as_ref().map(validate_message) {
        answer.insert("invalid".into(), invalid.to_string().into());
    }
    answer.insert("message".into(), message.unwrap_or_default());
    Ok(Value::Object(answer))
}

fn written(chunks: Vec<Value>, question: &Map<String, Value>) -> Result<Value, Box<dyn Error>> {
    let mut writer = RunWriter::new(RunId::new("r"), MessageId::new("m"));
    drop(writer.open());
    for chunk in chunks {
        drop(writer.write(Chunk::parse(chunk)?));
    }
    drop(if question.get("ending") == Some(&"stop".into()) { writer.stop() } else { writer.complete() });
    let message = writer.fold().message().and_then(|message| sanitise_message(message, Floor::NEWEST));
    Ok(message.map_or(Value::Null, |mut message| {
        as_forwarded(&mut message, question.get("waits") == Some(&true.into()));
        message
    }))
}

fn described(shape: &Shape) -> Value {
    let keys = shape.keys.iter().map(|key| json!({"name": key.name, "required": key.required}));
    json!({"type": shape.kind, "keys": keys.collect::<Vec<_>>()})
}
