//! Bytes that come in: the next piece of a request's or an answer's body.

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use web_sys::ReadableStreamDefaultReader;

/// The next bytes of a body; `None` at its end.
pub async fn next(reader: &ReadableStreamDefaultReader) -> Result<Option<Vec<u8>>, JsValue> {
    Ok(piece(reader).await?.map(|value| Uint8Array::new(&value).to_vec()))
}

/// Passes over the next bytes of a body: how many they were; `None` at its end.
pub async fn skip(reader: &ReadableStreamDefaultReader) -> Result<Option<usize>, JsValue> {
    let size = |value: JsValue| Uint8Array::new(&value).byte_length();
    Ok(piece(reader).await?.map(|value| usize::try_from(size(value)).unwrap_or(usize::MAX)))
}

async fn piece(reader: &ReadableStreamDefaultReader) -> Result<Option<JsValue>, JsValue> {
    let step = JsFuture::from(reader.read()).await?;
    if Reflect::get(&step, &JsValue::from_str("done"))?.is_truthy() {
        return Ok(None);
    }
    Reflect::get(&step, &JsValue::from_str("value")).map(Some)
}
