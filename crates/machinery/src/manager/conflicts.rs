//! Fields of other managers that the API server refuses together with the desired state. They are found from the causes
//! of the refusal.
//!
//! Guarantees
//! - The object changes only if an operation is found for every cause. Otherwise, no other manager's field is the
//!   reason, and the user gets the error. A reference (`FieldValueNotFound`) to a field that another cause blames needs
//!   no operation of its own.
//! - An operation replaces the smallest desired map or list item that encloses the blamed field and contains a field of
//!   another manager. That manager's fields in it are lost.
//! - `spec`, a pod template and a container are never replaced: only the blamed field is removed from them. `metadata`
//!   is not changed.
//! - A field or list item that is no longer desired is removed if it would be invalid without the fields that this
//!   manager applied.

use serde_json::{Value, json};

use super::compared::{Place, has_same_keys, keys};
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

/// A step of a cause's field: `containers[0].resources.limits[cpu]` has four.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Field(&'a str),
    /// An item of a list, by its index in the merged object.
    Item(usize),
}

/// Result of the search at or below a field.
#[derive(PartialEq, Eq)]
enum Found {
    /// An operation for the cause.
    Operation,
    /// The blamed field, which is not desired: the enclosing map must be replaced.
    Blamed,
    /// Nothing. The conflict can be with a field of an enclosing map.
    Nothing,
}

struct Search<'a> {
    cause: &'a Cause,
    owners: &'a Owners<'a>,
    /// The replacement for each JSON pointer; `None` removes the value.
    operations: Vec<(String, Option<Value>)>,
}

/// Returns the JSON patch operations that remove conflicts with `desired` from the `stored` object, and those of
/// `unwanted`, the last position of a list first.
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
    for cause in causes.iter().filter(|cause| cause.reason != "FieldValueNotFound") {
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
    // Of two operations for one path, that of `unwanted` is kept.
    all.sort_by_cached_key(|(path, _)| std::cmp::Reverse(sortable(path)));
    all.dedup_by(|one, other| one.0 == other.0);
    let operation = |(path, value): (String, Option<Value>)| match value {
        Some(value) => json!({ "op": "replace", "path": path, "value": value }),
        None => json!({ "op": "remove", "path": path }),
    };
    all.into_iter().map(operation).collect()
}

impl Search<'_> {
    /// Follows the blamed field to its end, then searches outwards for the first map that resolves the cause.
    fn resolve(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (Option<&Value>, Option<&Value>),
        steps: &[Step<'_>],
    ) -> Found {
        let Some(stored) = stored else { return Found::Nothing };
        if let (Some((Step::Item(index), rest)), Value::Array(items)) =
            (steps.split_first(), stored)
        {
            let desired = desired.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            return self.item(pointer, at, (desired, items), (*index, rest));
        }
        let Some(desired) = desired else { return self.undesired(pointer, steps) };
        let found = match steps.split_first() {
            // The API server compares requests with limits, and blames one of them.
            _ if pointer.ends_with("/resources") => Found::Nothing,
            None | Some((Step::Item(_) | Step::Field("metadata"), _)) => Found::Nothing,
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
        let is_applied = (self.owners.applied)(pointer);
        let is_foreign = (self.owners.others)(pointer);
        match self.cause.reason.as_str() {
            // A default can be refused, too, such as the `rollingUpdate` of a strategy that is no longer desired. A
            // Deployment reports it as forbidden, a StatefulSet as invalid.
            "FieldValueForbidden" if is_foreign || !is_applied => Found::Blamed,
            "FieldValueInvalid" if steps.is_empty() && !is_applied => Found::Blamed,
            // The API server removes the fields of this manager only.
            _ if is_foreign && is_applied => self.push(pointer, None),
            // Fields that another manager has set do not require this manager's fields, and its lists are not changed.
            "FieldValueRequired" => Found::Nothing,
            _ if steps.iter().any(|step| matches!(step, Step::Item(_))) => Found::Nothing,
            _ if is_foreign => Found::Blamed,
            _ => Found::Nothing,
        }
    }

    /// Resolves the cause in an item of a list that is merged by keys.
    fn item(
        &mut self,
        pointer: &str,
        at: &Place<'_>,
        (desired, stored): (&[Value], &[Value]),
        (index, steps): (usize, &[Step<'_>]),
    ) -> Found {
        let Some(keys) = keys(at, stored) else { return Found::Nothing };
        let path = |index: usize| below(pointer, &index.to_string());
        let of_stored = |item: &Value| desired.iter().find(|it| has_same_keys(keys, it, item));
        if let ("FieldValueDuplicate", [Step::Field(name)]) = (self.cause.reason.as_str(), steps) {
            let mut found = Found::Nothing;
            for (index, item) in stored.iter().enumerate() {
                let is_freed = self.duplicate(&path(index), name, (of_stored(item), item), desired);
                found = if is_freed == Found::Operation { is_freed } else { found };
            }
            return found;
        }
        let goes = |index: &usize| {
            let (path, item) = (path(*index), &stored[*index]);
            of_stored(item).is_none()
                && (self.owners.applied)(&path)
                && !(self.owners.others)(&path)
        };
        let merged = merged(keys, desired, stored);
        let mut merged = merged.into_iter().filter(|index| !index.as_ref().is_some_and(goes));
        let Some(Some(index)) = merged.nth(index) else { return Found::Nothing };
        let item = &stored[index];
        match of_stored(item) {
            Some(desired) => self.resolve(&path(index), at, (Some(desired), Some(item)), steps),
            None if (self.owners.applied)(&path(index)) => self.push(&path(index), None),
            None => Found::Nothing,
        }
    }

    /// Removes a value, such as the name of a port, from a list item if a desired item has the same value.
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
            // The apply sets its desired value.
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

/// Returns the indexes of stored items in the order in which server-side apply merges a list (`visitListItems` in
/// sigs.k8s.io/structured-merge-diff, typed/merge.go); `None` for a new item. The desired order applies. A stored item
/// that is not desired keeps its place before the next item that is both stored and desired.
fn merged(keys: &[&str], desired: &[Value], stored: &[Value]) -> Vec<Option<usize>> {
    let is_desired = |item: &Value| desired.iter().any(|it| has_same_keys(keys, it, item));
    let index_of = |item: &Value| stored.iter().position(|it| has_same_keys(keys, item, it));
    let (mut all, mut from) = (Vec::new(), 0);
    for (number, item) in desired.iter().enumerate() {
        let next_of_both = desired[number..].iter().find_map(index_of);
        while from < stored.len() && next_of_both != Some(from) {
            if !is_desired(&stored[from]) {
                all.push(Some(from));
            }
            from += 1;
        }
        let index = index_of(item);
        from += usize::from(index == Some(from));
        all.push(index);
    }
    all.extend((from..stored.len()).filter(|index| !is_desired(&stored[*index])).map(Some));
    all
}

/// Returns whether a map is too broad to be replaced: a `spec`, a template, a container.
fn is_wide(pointer: &str) -> bool {
    let mut names = pointer.rsplit('/');
    let (name, list) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    matches!(name, "" | "spec") || name.ends_with("emplate") || list.ends_with("ontainers")
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
            steps.push(key.parse().map_or(Step::Field(key), Step::Item));
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
