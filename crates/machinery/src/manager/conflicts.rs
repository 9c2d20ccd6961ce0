//! Fields of other managers that the API server refuses next to the desired state, found from the causes of its
//! refusal.
//!
//! Guarantees
//! - The object changes only if an operation is found for every cause. Otherwise another manager's field is not the
//!   reason, and the error is for the user.
//! - An operation replaces the smallest desired map or list item around the blamed field that contains a field of
//!   another manager. That manager's fields in it are lost.
//! - `metadata`, `spec`, a pod template and a container are never replaced. In them, only the blamed field goes.
//! - A field or list item that is no longer desired is removed if it would be invalid without the fields that this
//!   manager applied to it.

use serde_json::{Value, json};

use super::compared::{Place, has_same_keys, keys};
use crate::client::Cause;

/// Returns whether a manager owns the field at a JSON pointer into the stored object, or a part of it.
pub(super) type Owns<'a> = &'a dyn Fn(&str) -> bool;

/// Who owns the fields of the stored object. Nobody owns the API server's defaults.
pub(super) struct Owners<'a> {
    /// This manager, by its last apply.
    pub applied: Owns<'a>,
    /// Any other manager.
    pub others: Owns<'a>,
}

/// A step of a cause's field: `containers[0].resources.limits[cpu]` has four.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Field(&'a str),
    /// Any item of a list. The index of a cause is that of the merged object, which only the API server knows.
    Item,
}

/// What the search found at or below a field.
#[derive(PartialEq, Eq)]
enum Found {
    /// An operation for the cause.
    Operation,
    /// The blamed field, which is not desired: the enclosing map is to be replaced.
    Blamed,
    /// Nothing. The conflict can be with a field of an enclosing map.
    Nothing,
}

struct Search<'a> {
    cause: &'a Cause,
    owners: &'a Owners<'a>,
    /// By JSON pointer: the replacement, or `None` to remove what is there.
    operations: Vec<(String, Option<Value>)>,
}

/// Returns the JSON patch operations that make room for `desired` in the `stored` object, and those of `unwanted`, the
/// last position of a list first.
pub(super) fn operations(
    causes: &[Cause],
    desired: &Value,
    stored: &Value,
    owners: &Owners<'_>,
    unwanted: &[Value],
) -> Vec<Value> {
    let known = |operation: &Value| {
        let path = operation["path"].as_str().unwrap_or_default().to_owned();
        (path, operation.get("value").cloned())
    };
    let mut all: Vec<_> = unwanted.iter().map(known).collect();
    for cause in causes {
        let mut search = Search { cause, owners, operations: Vec::new() };
        search.resolve("", &Place::ROOT, (Some(desired), Some(stored)), &steps(&cause.field));
        if search.operations.is_empty() {
            all.truncate(unwanted.len());
            break;
        }
        all.extend(search.operations);
    }
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    let outermost = all.clone();
    all.retain(|(path, _)| !outermost.iter().any(|(outer, _)| is_within(path, outer)));
    // Of two for one place, the unwanted one stays.
    all.sort_by_cached_key(|(path, _)| std::cmp::Reverse(sortable(path)));
    all.dedup_by(|one, other| one.0 == other.0);
    let operation = |(path, value): (String, Option<Value>)| match value {
        Some(value) => json!({ "op": "replace", "path": path, "value": value }),
        None => json!({ "op": "remove", "path": path }),
    };
    all.into_iter().map(operation).collect()
}

impl Search<'_> {
    /// Follows the blamed field to its end, and climbs back to the first map that resolves the cause.
    fn resolve(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (Option<&Value>, Option<&Value>),
        steps: &[Step<'_>],
    ) -> Found {
        let Some(stored) = stored else { return Found::Nothing };
        let Some(desired) = desired else { return self.undesired(pointer, steps) };
        let found = match steps.split_first() {
            // The API server compares requests with limits, and blames one of them.
            _ if pointer.ends_with("/resources") => Found::Nothing,
            None => Found::Nothing,
            Some((Step::Item, rest)) => self.items(pointer, at, (desired, stored), rest),
            Some((Step::Field(name), rest)) => {
                let (inner, pair) = (at.inner(name), (desired.get(name), stored.get(name)));
                let below = below(pointer, name);
                let found = self.resolve(&below, &inner, pair, rest);
                if found == Found::Blamed && is_wide(pointer) {
                    let is_foreign = (self.owners.others)(&below);
                    return if is_foreign { self.push(&below, None) } else { Found::Nothing };
                }
                found
            }
        };
        let is_replaced = !is_wide(pointer)
            && stored.is_object()
            && match found {
                Found::Operation => false,
                Found::Blamed => true,
                Found::Nothing => {
                    self.cause.reason != "FieldValueDuplicate"
                        && self.has_foreign(pointer, desired, stored)
                }
            };
        if is_replaced { self.push(pointer, Some(desired.clone())) } else { found }
    }

    /// Resolves the cause in a field or item that exists and is not desired.
    fn undesired(&mut self, pointer: &str, steps: &[Step<'_>]) -> Found {
        let (is_applied, is_foreign) =
            ((self.owners.applied)(pointer), (self.owners.others)(pointer));
        match self.cause.reason.as_str() {
            // What is left of it once the fields of this manager go.
            "FieldValueRequired" if is_applied => self.push(pointer, None),
            "FieldValueRequired" => Found::Nothing,
            // An item of another manager's list is its own concern.
            _ if steps.contains(&Step::Item) => Found::Nothing,
            // A default can be forbidden, too: the pace of a strategy that is no longer desired.
            "FieldValueForbidden" if is_foreign || !is_applied => Found::Blamed,
            _ if is_foreign => Found::Blamed,
            _ => Found::Nothing,
        }
    }

    /// Resolves the cause in each item of a list that can be meant.
    fn items(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (&Value, &Value),
        steps: &[Step<'_>],
    ) -> Found {
        let (Some(wanted), Some(items)) = (desired.as_array(), stored.as_array()) else {
            return Found::Nothing;
        };
        let Some(keys) = keys(at, items) else { return Found::Nothing };
        let mut found = Found::Nothing;
        for (index, item) in items.iter().enumerate() {
            let path = below(pointer, &index.to_string());
            let same = wanted.iter().find(|wanted| has_same_keys(keys, wanted, item));
            let of_item = match (self.cause.reason.as_str(), steps) {
                ("FieldValueDuplicate", [Step::Field(name)]) => {
                    self.duplicate(&path, name, (same, item), wanted)
                }
                _ if same.is_some() => self.resolve(&path, at, (same, Some(item)), steps),
                // A container that loses its image. An item of another manager needs none of this manager's fields.
                ("FieldValueRequired", [Step::Field(name)])
                    if (self.owners.applied)(&below(&path, name)) =>
                {
                    self.push(&path, None)
                }
                _ => Found::Nothing,
            };
            if of_item == Found::Operation {
                found = of_item;
            }
        }
        found
    }

    /// Takes a value, such as the name of a port, from a list item that is not desired to have it, if a desired item
    /// has it.
    fn duplicate(
        &mut self,
        path: &str,
        name: &str,
        (desired, stored): (Option<&Value>, &Value),
        all: &[Value],
    ) -> Found {
        let value = &stored[name];
        let is_taken = !value.is_null() && all.iter().any(|item| item[name] == *value);
        if !is_taken || !(self.owners.others)(&below(path, name)) {
            return Found::Nothing;
        }
        match desired {
            None => self.push(path, None),
            Some(desired) if desired[name].is_null() => self.push(path, Some(desired.clone())),
            // It gets its own.
            Some(_) => Found::Nothing,
        }
    }

    /// Returns whether another manager owns a field of a desired map that is not desired.
    fn has_foreign(&self, pointer: &str, desired: &Value, stored: &Value) -> bool {
        stored.as_object().into_iter().flatten().any(|(name, value)| {
            let path = below(pointer, name);
            match desired.get(name) {
                None => (self.owners.others)(&path),
                Some(desired) => self.has_foreign(&path, desired, value),
            }
        })
    }

    fn push(&mut self, pointer: &str, replacement: Option<Value>) -> Found {
        self.operations.push((pointer.to_owned(), replacement));
        Found::Operation
    }
}

/// Returns whether a map contains more than one concern: `metadata`, a `spec`, a template, a container.
fn is_wide(pointer: &str) -> bool {
    let mut names = pointer.rsplit('/');
    let (name, list) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    matches!(name, "" | "metadata" | "spec")
        || name.ends_with("emplate")
        || list.ends_with("ontainers")
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

/// Returns a pointer whose indexes sort as numbers.
fn sortable(pointer: &str) -> Vec<(usize, String)> {
    let step = |step: &str| (step.parse().unwrap_or(0), step.to_owned());
    pointer.split('/').map(step).collect()
}

#[cfg(test)]
mod tests;
