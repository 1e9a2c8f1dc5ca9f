//! Bytes that come in: the next piece of a request's or an answer's body.

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use web_sys::ReadableStreamDefaultReader;

/// The next bytes of a body; `None` at its end.
pub async fn next(reader: &ReadableStreamDefaultReader) -> Result<Option<Vec<u8>>, JsValue> {
    let step = JsFuture::from(reader.read()).await?;
    if Reflect::get(&step, &JsValue::from_str("done"))?.is_truthy() {
        return Ok(None);
    }
    let value = Reflect::get(&step, &JsValue::from_str("value"))?;
    Ok(Some(Uint8Array::new(&value).to_vec()))
}
