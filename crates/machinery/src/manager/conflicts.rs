//! Fields of other managers that the API server refuses next to the desired state, found from the causes of its
//! refusal.
//!
//! Guarantees
//! - Only the blamed part of the object changes: the smallest desired map or list item around a blamed field is
//!   replaced by its desired state. Other managers' fields in it are lost.
//! - A blamed list item or field that is not desired is removed if another manager set it, or if it would be invalid
//!   without the desired state.
//! - `spec` and the spec of a pod template are never replaced, and nothing in `metadata` changes.
//! - The operations alone leave a valid object, as far as the desired state is valid.

use serde_json::{Value, json};

use super::compared::{Place, keys};
use crate::client::Cause;

/// Maps that contain more than one concern: other managers' fields in them are removed one by one.
const WIDE: [&str; 5] = ["", "/metadata", "/spec", "/spec/template", "/spec/template/spec"];

/// A step of a cause's field: `containers[0].resources.limits[cpu]` has four.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Field(&'a str),
    /// Any item of a list. The index of a cause is that of the merged object, which only the API server knows.
    Item,
}

struct Search<'a> {
    cause: &'a Cause,
    /// Returns whether the field at a JSON pointer into the stored object is not applied by this manager.
    foreign: &'a dyn Fn(&str) -> bool,
    /// By JSON pointer: the replacement, or `None` to remove what is there.
    found: &'a mut Vec<(String, Option<Value>)>,
}

/// Returns the JSON patch operations that make room for `desired` in the `stored` object, and those of `unwanted`, the
/// last position of a list first.
pub(super) fn operations(
    causes: &[Cause],
    desired: &Value,
    stored: &Value,
    foreign: &dyn Fn(&str) -> bool,
    unwanted: &[Value],
) -> Vec<Value> {
    let known = |operation: &Value| {
        let path = operation["path"].as_str().unwrap_or_default().to_owned();
        (path, operation.get("value").cloned())
    };
    let mut found: Vec<_> = unwanted.iter().map(known).collect();
    for cause in causes.iter().filter(|cause| !cause.field.starts_with("metadata")) {
        let mut search = Search { cause, foreign, found: &mut found };
        search.resolve("", &Place::ROOT, (Some(desired), Some(stored)), &steps(&cause.field));
    }
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    let outermost = found.clone();
    found.retain(|(path, _)| !outermost.iter().any(|(outer, _)| is_within(path, outer)));
    found.sort_by_cached_key(|(path, _)| std::cmp::Reverse(sortable(path)));
    found.dedup_by(|one, other| one.0 == other.0);
    let operation = |(path, value): (String, Option<Value>)| match value {
        Some(value) => json!({ "op": "replace", "path": path, "value": value }),
        None => json!({ "op": "remove", "path": path }),
    };
    found.into_iter().map(operation).collect()
}

impl Search<'_> {
    /// Returns whether an operation at or below `pointer` resolves the cause. If not, the enclosing map is to be
    /// replaced.
    fn resolve(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (Option<&Value>, Option<&Value>),
        steps: &[Step<'_>],
    ) -> bool {
        let Some(stored) = stored else { return false };
        let Some(desired) = desired else {
            // It stays behind when the desired state takes away what made it valid.
            let is_left_over = steps.is_empty() && self.cause.reason == "FieldValueRequired";
            if is_left_over {
                self.found.push((pointer.to_owned(), None));
            }
            return is_left_over;
        };
        let is_resolved = match steps.split_first() {
            None => false,
            Some((Step::Item, rest)) => self.items(pointer, at, (desired, stored), rest),
            Some((Step::Field(name), rest)) => {
                let (inner, pair) = (at.inner(name), (desired.get(name), stored.get(name)));
                self.resolve(&format!("{pointer}/{}", escaped(name)), &inner, pair, rest)
            }
        };
        let (Value::Object(wanted), Value::Object(fields), false) = (desired, stored, is_resolved)
        else {
            return is_resolved;
        };
        let mut others = fields.keys().filter(|name| !wanted.contains_key(*name)).peekable();
        if others.peek().is_none() {
            return false;
        }
        if !WIDE.contains(&pointer) {
            self.found.push((pointer.to_owned(), Some(desired.clone())));
            return true;
        }
        let is_blamed = |name: &&String| match steps.first() {
            // A PodDisruptionBudget with both bounds.
            None => pointer == "/spec",
            Some(step) => *step == Step::Field(name.as_str()),
        };
        let paths = others.filter(is_blamed).map(|name| format!("{pointer}/{}", escaped(name)));
        let foreign: Vec<_> = paths.filter(|path| (self.foreign)(path)).collect();
        self.found.extend(foreign.into_iter().map(|path| (path, None)));
        true
    }

    /// Resolves the cause in each item of a list that can be meant.
    fn items(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (&Value, &Value),
        steps: &[Step<'_>],
    ) -> bool {
        let (Some(wanted), Some(items)) = (desired.as_array(), stored.as_array()) else {
            return false;
        };
        let Some(keys) = keys(at, items) else { return false };
        let is_same = |one: &Value, other: &Value| {
            keys.iter()
                .all(|key| one[*key] == other[*key] || *key == "protocol" && one[*key].is_null())
        };
        let blamed = |item: &Value| match steps {
            [Step::Field(name)] => item.get(*name).filter(|value| !value.is_object()).cloned(),
            _ => None,
        };
        let mut any = false;
        for (index, item) in items.iter().enumerate() {
            let path = format!("{pointer}/{index}");
            if let Some(wanted) = wanted.iter().find(|wanted| is_same(wanted, item)) {
                any |= self.resolve(&path, at, (Some(wanted), Some(item)), steps);
                continue;
            }
            let field = blamed(item);
            let removes = match self.cause.reason.as_str() {
                // The container that loses its image.
                "FieldValueRequired" => match steps {
                    [Step::Field(name)] => !(self.foreign)(&format!("{path}/{}", escaped(name))),
                    _ => false,
                },
                // Its name or node port is that of a desired item.
                _ => {
                    let is_taken = |wanted: &Value| field.is_some() && blamed(wanted) == field;
                    wanted.iter().any(is_taken) && (self.foreign)(&path)
                }
            };
            if removes {
                self.found.push((path, None));
            }
            any |= removes;
        }
        any
    }
}

/// Splits a field as in `spec.ports[0].name` or `requests[example.com/gpu]`.
fn steps(field: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((key, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let is_index = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
            steps.push(if is_index { Step::Item } else { Step::Field(key) });
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

/// Escapes a name as a step of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns a pointer whose indexes sort as numbers.
fn sortable(pointer: &str) -> Vec<(usize, String)> {
    let step = |step: &str| (step.parse().unwrap_or(0), step.to_owned());
    pointer.split('/').map(step).collect()
}

#[cfg(test)]
mod tests;
