//! Fields of other managers that the API server refuses together with the desired state. They are found from the causes
//! of the refusal.
//!
//! Guarantees
//! - The object changes only if an operation is found for every cause. Otherwise, no other manager's field is the
//!   reason, and the user gets the error. A reference (`FieldValueNotFound`) to a field that another cause blames needs
//!   no operation of its own.
//! - An operation sets the blamed field of a `spec`, of a pod template or of a container as desired, as a whole, or
//!   removes it. That is done only if another manager has set a part of it, or if a default is blamed.
//! - A volume is set as desired as a whole. `metadata` is not changed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::Cause;

/// Returns whether a manager owns the field at a JSON pointer into the stored object, or a part of it.
pub(super) type Owns<'a> = &'a dyn Fn(&str) -> bool;

/// The owners of the fields of the stored object. Defaults of the API server have no owner.
pub(super) struct Owners<'a> {
    /// This manager, by its last apply.
    pub applied: Owns<'a>,
    /// Any other manager.
    pub others: Owns<'a>,
}

/// A step of a cause's field: `containers[0].resources.limits[cpu]` has five.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Field(&'a str),
    /// An item of a list. Its index is that in the merged object, which only the API server has seen.
    Item,
}

struct Search<'a> {
    owners: &'a Owners<'a>,
    /// The replacement for each JSON pointer; `None` removes the value.
    found: BTreeMap<String, Option<Value>>,
}

/// Returns the JSON patch operations that resolve the conflicts of the `stored` object with `desired`. Returns none if
/// no other manager is the reason for one of the causes.
pub(super) fn operations(
    causes: &[Cause],
    desired: &Value,
    stored: &Value,
    owners: &Owners<'_>,
) -> Vec<Value> {
    let mut search = Search { owners, found: BTreeMap::new() };
    for cause in causes.iter().filter(|cause| cause.reason != "FieldValueNotFound") {
        if !search.resolve("", desired, stored, &steps(&cause.field)) {
            return Vec::new();
        }
    }
    let mut found: Vec<_> = search.found.into_iter().collect();
    // The last position of a list first: its path is the longest.
    found.sort_by_key(|(path, _)| std::cmp::Reverse((path.len(), path.clone())));
    let operation = |(path, value): (String, Option<Value>)| match value {
        Some(value) => json!({ "op": "replace", "path": path, "value": value }),
        None => json!({ "op": "remove", "path": path }),
    };
    found.into_iter().map(operation).collect()
}

impl Search<'_> {
    /// Follows a blamed field to the part that is set as a whole. Returns whether there is an operation for it.
    fn resolve(
        &mut self,
        pointer: &str,
        desired: &Value,
        stored: &Value,
        steps: &[Step<'_>],
    ) -> bool {
        let Some((Step::Field(name), rest)) = steps.split_first() else { return false };
        let Some(stored) = stored.get(name).filter(|_| *name != "metadata") else { return false };
        let path = below(pointer, name);
        let has_parts = name.ends_with("ontainers") || *name == "volumes";
        match (desired.get(name), rest) {
            (Some(desired), _) if is_wide(&path) => self.resolve(&path, desired, stored, rest),
            (Some(Value::Array(desired)), [Step::Item, rest @ ..]) if has_parts => {
                let mut any = false;
                for (at, item) in stored.as_array().into_iter().flatten().enumerate() {
                    any |= self.resolve_item(&below(&path, &at.to_string()), desired, item, rest);
                }
                any
            }
            // Containers and volumes of other managers only.
            (None, _) if has_parts => false,
            (desired, _) => self.replace(path, desired, stored, rest),
        }
    }

    /// Resolves the cause in an item of a list of containers or volumes: the blamed one is not known.
    fn resolve_item(
        &mut self,
        path: &str,
        desired: &[Value],
        stored: &Value,
        steps: &[Step<'_>],
    ) -> bool {
        match desired.iter().find(|item| item["name"] == stored["name"]) {
            Some(desired) if is_wide(path) => self.resolve(path, desired, stored, steps),
            Some(desired) => self.replace(path.to_owned(), Some(desired), stored, steps),
            // The apply would remove only the fields of this manager.
            None => {
                let goes = (self.owners.applied)(path) && (self.owners.others)(path);
                goes && {
                    self.found.insert(path.to_owned(), None);
                    true
                }
            }
        }
    }

    fn replace(
        &mut self,
        path: String,
        desired: Option<&Value>,
        stored: &Value,
        steps: &[Step<'_>],
    ) -> bool {
        let is_foreign =
            (self.owners.others)(&path) || self.is_default(&path, desired, stored, steps);
        if is_foreign {
            let value = desired.map(|desired| with_node_ports(desired, stored));
            self.found.insert(path, value);
        }
        is_foreign
    }

    /// Returns whether a default is blamed, such as the `rollingUpdate` of a strategy that is no longer desired.
    fn is_default(
        &self,
        pointer: &str,
        desired: Option<&Value>,
        stored: &Value,
        steps: &[Step<'_>],
    ) -> bool {
        match (desired, steps.split_first()) {
            (None, _) => !(self.owners.applied)(pointer),
            (Some(desired), Some((Step::Field(name), rest))) => {
                stored.get(name).is_some_and(|stored| {
                    self.is_default(&below(pointer, name), desired.get(name), stored, rest)
                })
            }
            _ => false,
        }
    }
}

/// Returns the desired value, whose ports keep the node ports that the API server has allocated.
fn with_node_ports(desired: &Value, stored: &Value) -> Value {
    let mut value = desired.clone();
    let stored = stored.as_array().map_or(&[][..], Vec::as_slice);
    for port in value.as_array_mut().into_iter().flatten().filter(|port| port["port"].is_u64()) {
        let protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP").to_owned();
        let is_same = |it: &&Value| it["port"] == port["port"] && protocol(it) == protocol(port);
        if let Some(number) = stored.iter().find(is_same).and_then(|port| port.get("nodePort"))
            && port["nodePort"].is_null()
        {
            port["nodePort"] = number.clone();
        }
    }
    value
}

/// Returns whether a map is too broad to be set as a whole: a `spec`, a template, a container.
fn is_wide(pointer: &str) -> bool {
    let mut names = pointer.rsplit('/');
    let (name, list) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    name == "spec" || name.ends_with("emplate") || list.ends_with("ontainers")
}

/// Returns the JSON pointer to a field, or to an item by its index.
fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Splits a field as in `spec.ports[0].name` or `requests[example.com/gpu]`.
fn steps(field: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((key, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            steps.push(if key.parse::<usize>().is_ok() { Step::Item } else { Step::Field(key) });
            rest = after;
            continue;
        }
        let start = rest.strip_prefix('.').unwrap_or(rest);
        let end = start.find(['.', '[']).unwrap_or(start.len());
        if end > 0 {
            steps.push(Step::Field(&start[..end]));
        }
        rest = if end == 0 && start.len() == rest.len() { "" } else { &start[end..] };
    }
    steps
}

#[cfg(test)]
mod tests;
