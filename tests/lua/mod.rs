//! Argo CD's view of an object: its health check, run as Argo CD runs it.

use mlua::{Lua, LuaOptions, StdLib, Table};
use serde_json::Value;

/// The status and message that `script` returns for `object`. Argo CD's Lua has no string library.
pub(crate) fn health(script: &str, object: &Value) -> (String, String) {
    let lua = Lua::new_with(StdLib::TABLE, LuaOptions::default()).expect("a Lua");
    lua.globals().set("obj", in_lua(&lua, object)).expect("a global");
    let made: Table = lua.load(script).eval().unwrap_or_else(|error| panic!("{error}"));
    let word = |field: &str| made.get::<String>(field).unwrap_or_else(|error| panic!("{error}"));
    (word("status"), word("message"))
}

/// The value as Argo CD passes it: every number is a float, null is nil.
fn in_lua(lua: &Lua, value: &Value) -> mlua::Value {
    match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(truth) => mlua::Value::Boolean(*truth),
        Value::Number(number) => mlua::Value::Number(number.as_f64().expect("a JSON number")),
        Value::String(text) => mlua::Value::String(lua.create_string(text).expect("a string")),
        Value::Array(items) => {
            let items = items.iter().map(|item| in_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).expect("a table"))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.as_str(), in_lua(lua, field)));
            mlua::Value::Table(lua.create_table_from(fields).expect("a table"))
        }
    }
}
