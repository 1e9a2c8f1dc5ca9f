//! The few JavaScript bindings that workers-rs lacks, all with `catch`: a throw in a binding without it hangs every stream in the isolate.

use js_sys::{Array, Object, Promise};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// `DurableObjectStorage`.
    #[wasm_bindgen(extends = Object)]
    #[derive(Clone)]
    pub type ObjectStorage;

    #[wasm_bindgen(method, getter)]
    pub fn sql(this: &ObjectStorage) -> ObjectSql;

    /// Runs `body` as one transaction; an `Err` or a panic inside rolls back.
    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    pub fn transaction_sync(
        this: &ObjectStorage,
        body: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    /// Resolves once every write so far is durable.
    #[wasm_bindgen(method, catch)]
    pub fn sync(this: &ObjectStorage) -> Result<Promise, JsValue>;

    /// `at` is absolute, in ms since 1970.
    #[wasm_bindgen(method, catch, js_name = setAlarm)]
    pub fn set_alarm(this: &ObjectStorage, at: f64) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = deleteAlarm)]
    pub fn delete_alarm(this: &ObjectStorage) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = deleteAll)]
    pub fn delete_all(this: &ObjectStorage) -> Result<Promise, JsValue>;

    /// `SqlStorage`.
    #[wasm_bindgen(extends = Object)]
    #[derive(Clone)]
    pub type ObjectSql;

    #[wasm_bindgen(method, catch, variadic)]
    pub fn exec(this: &ObjectSql, statement: &str, params: Array) -> Result<SqlCursor, JsValue>;

    /// `SqlStorageCursor`.
    #[wasm_bindgen(extends = Object)]
    pub type SqlCursor;

    #[wasm_bindgen(method, catch)]
    pub fn raw(this: &SqlCursor) -> Result<RowIterator, JsValue>;

    #[wasm_bindgen(method, catch, getter, js_name = rowsWritten)]
    pub fn rows_written(this: &SqlCursor) -> Result<f64, JsValue>;

    /// The iterator of `SqlStorageCursor.raw()`.
    #[wasm_bindgen(extends = Object)]
    pub type RowIterator;

    #[wasm_bindgen(method, catch)]
    pub fn next(this: &RowIterator) -> Result<RowStep, JsValue>;

    /// `{done, value}`.
    #[wasm_bindgen(extends = Object)]
    pub type RowStep;

    #[wasm_bindgen(method, getter)]
    pub fn done(this: &RowStep) -> bool;

    #[wasm_bindgen(method, getter)]
    pub fn value(this: &RowStep) -> Array;

    #[wasm_bindgen(catch, js_name = setTimeout)]
    pub fn set_timeout(callback: &js_sys::Function, ms: f64) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(catch, js_name = clearTimeout)]
    pub fn clear_timeout(id: &JsValue) -> Result<(), JsValue>;

    #[wasm_bindgen(catch, js_name = fetch)]
    pub fn fetch(request: &web_sys::Request) -> Result<Promise, JsValue>;

    /// `DurableObjectNamespace`.
    #[wasm_bindgen(extends = Object)]
    pub type ObjectNamespace;

    #[wasm_bindgen(method, catch, js_name = getByName)]
    pub fn get_by_name(this: &ObjectNamespace, name: &str) -> Result<Fetcher, JsValue>;

    /// A service binding, or the stub of an object.
    #[wasm_bindgen(extends = Object)]
    pub type Fetcher;

    #[wasm_bindgen(method, catch, js_name = fetch)]
    pub fn fetch_with(this: &Fetcher, address: &str, init: &web_sys::RequestInit) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = fetch)]
    pub fn fetch(this: &Fetcher, request: &web_sys::Request) -> Result<Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = crypto, js_name = getRandomValues)]
    pub fn random_values(bytes: &js_sys::Uint8Array) -> Result<JsValue, JsValue>;
}

/// The text of a JavaScript error, for the log line only.
pub fn error_text(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => error.as_string().unwrap_or_else(|| "not an Error".to_owned()),
    }
}
