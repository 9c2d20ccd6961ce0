//! Output of `kubectl get` for a custom resource, according to the columns of its CRD (O1).

use serde_json::Value;

use super::schema;
use crate::world::Kind;

/// The printer columns of a kind.
#[derive(Debug)]
pub struct Columns(Vec<Value>);

impl Columns {
    /// As defined in its CRD.
    pub fn of(kind: Kind) -> Columns {
        let columns = &schema::version(kind)["additionalPrinterColumns"];
        Columns(columns.as_array().cloned().unwrap_or_default())
    }

    /// Columns that would be blank or would break a row apart.
    pub fn breaches(&self, object: &Value) -> Vec<String> {
        let narrow = self.0.iter().filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
        let odd = narrow.filter_map(|column| {
            let path = column["jsonPath"].as_str().expect("a column has a path");
            let cell = match at(object, path)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let is_odd = cell.is_empty() || cell == "null" || cell.contains(char::is_whitespace);
            is_odd.then(|| format!("O1: the column {} is {cell:?}", column["name"]))
        });
        let mut broken: Vec<String> = odd.collect();
        if self.0.last().is_some_and(|last| last["type"] != "date") {
            broken.push("O1: the age is not the last column".to_owned());
        }
        broken
    }
}

/// Returns what a path leads to: fields, and `[?(@.type=="X")]`. A missing field is null, except in
/// the spec: there it gives `None`, because it is optional.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let of_spec = path.starts_with(".spec.");
    let path = path.replace("[?(@.type==\"", ".?").replace("\")]", "");
    let mut value = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        value = match part.strip_prefix('?') {
            Some(of) => {
                let found = value.as_array().into_iter().flatten().find(|c| c["type"] == of);
                found.unwrap_or(&Value::Null)
            }
            None => &value[part],
        };
    }
    (!(of_spec && value.is_null())).then_some(value)
}
