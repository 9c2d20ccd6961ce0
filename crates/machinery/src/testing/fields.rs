//! Sets of fields and their operations in a server-side apply, as in sigs.k8s.io/structured-merge-diff.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::schema::{Items, Type};

/// A path into an object, with steps in the form of `managedFields`: `f:name`, `k:{"name":"a"}`, `v:"a"`.
pub(super) type Path = Vec<String>;

/// A set of fields.
pub(super) type Fields = BTreeSet<Path>;

/// The changes by a write.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) set: Fields,
    pub(super) removed: Fields,
}

/// An error message about a list item that lacks all keys of its list.
pub(super) struct NoKey(pub(super) String);

/// The parts of a map or list: by step, the type and the values. Only a list with duplicates has more than one.
type Parts<'a> = BTreeMap<String, (Type<'a>, Vec<&'a Value>)>;

// === The form of managedFields ===

/// Reads a set from `fieldsV1`.
pub(super) fn decode(fields: &Value) -> Fields {
    fn walk(fields: &Value, path: &mut Path, set: &mut Fields) {
        let Some(fields) = fields.as_object() else { return };
        if !path.is_empty() && (fields.is_empty() || fields.contains_key(".")) {
            set.insert(path.clone());
        }
        for (name, below) in fields.iter().filter(|(name, _)| *name != ".") {
            path.push(name.clone());
            walk(below, path, set);
            path.pop();
        }
    }
    let mut set = Fields::new();
    walk(fields, &mut Path::new(), &mut set);
    set
}

/// Writes a set as `fieldsV1`.
pub(super) fn encode(set: &Fields) -> Value {
    let mut fields = json!({});
    for path in set {
        let mut at = &mut fields;
        for (depth, step) in path.iter().enumerate() {
            if set.contains(&path[..depth]) {
                at["."] = json!({});
            }
            at = &mut at[step];
            if at.is_null() {
                *at = json!({});
            }
        }
    }
    fields
}

/// Formats a path for messages: `.spec.containers[name="a"].image`.
pub(super) fn shown(path: &[String]) -> String {
    let step = |step: &String| match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, value)) => format!("[={value}]"),
        None => String::new(),
    };
    path.iter().map(step).collect()
}

// === Sets of an object ===

/// Returns the fields that a configuration sets.
pub(super) fn of(kind: Type<'_>, config: &Value) -> Result<Fields, NoKey> {
    fn walk(at: Type<'_>, value: &Value, path: &mut Path, set: &mut Fields) -> Result<(), NoKey> {
        let Some(parts) = parts(at, value, path.is_empty())? else {
            set.insert(path.clone());
            return Ok(());
        };
        for (step, (below, values)) in parts {
            let is_declared =
                step.strip_prefix("f:").is_some_and(|name| at.declares(name, path.is_empty()));
            path.push(step);
            if let [value] = values[..] {
                walk(below, value, path, set)?;
            }
            if !is_declared || *values[0] == json!({}) {
                set.insert(path.clone());
            }
            path.pop();
        }
        Ok(())
    }
    let mut set = Fields::new();
    walk(kind, config, &mut Path::new(), &mut set)?;
    Ok(set)
}

/// Returns the difference between two states of an object, without `managedFields`.
pub(super) fn changes(kind: Type<'_>, old: &Value, new: &Value) -> Result<Changes, NoKey> {
    let mut changes = Changes::default();
    compare(kind, Some(old), Some(new), &mut Path::new(), &mut changes)?;
    Ok(changes)
}

fn compare<'a>(
    at: Type<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    path: &mut Path,
    changes: &mut Changes,
) -> Result<(), NoKey> {
    let is_managers = path.len() == 2 && path[0] == "f:metadata" && path[1] == "f:managedFields";
    // Equal parts, which are most, have no changes.
    if is_managers || old.is_some() && old == new {
        return Ok(());
    }
    let is_root = path.is_empty();
    let of = |value: Option<&'a Value>| match value {
        Some(value) => Ok(parts(at, value, is_root)?.unwrap_or_default()),
        None => Ok(Parts::new()),
    };
    let (olds, news) = (of(old)?, of(new)?);
    match (old, new) {
        (None, _) => drop(changes.set.insert(path.clone())),
        (_, None) => drop(changes.removed.insert(path.clone())),
        // Their parts are compared below.
        (Some(Value::Object(_)), Some(Value::Object(_)))
        | (Some(Value::Array(_)), Some(Value::Array(_)))
            if !(olds.is_empty() && news.is_empty()) => {}
        (old, new) if old == new => {}
        _ => drop(changes.set.insert(path.clone())),
    }
    let steps: BTreeSet<&String> = olds.keys().chain(news.keys()).collect();
    for step in steps {
        let (old, new) = (olds.get(step), news.get(step));
        let below = old.or(new).map_or(Type::Unknown, |(below, _)| *below);
        let values = |part: Option<&(Type<'a>, Vec<&'a Value>)>| {
            part.map(|(_, values)| values.clone()).unwrap_or_default()
        };
        path.push(step.clone());
        compare_items(below, &values(old), &values(new), path, changes)?;
        path.pop();
    }
    Ok(())
}

/// Compares the items of two states at one step. Several items with the same keys are one field.
fn compare_items<'a>(
    at: Type<'a>,
    old: &[&'a Value],
    new: &[&'a Value],
    path: &mut Path,
    changes: &mut Changes,
) -> Result<(), NoKey> {
    let first = |values: &[&'a Value]| values.first().copied();
    match (old.len() > 1, new.len() > 1) {
        (false, false) => return compare(at, first(old), first(new), path, changes),
        (true, true) if old == new => {}
        (true, true) => drop(changes.set.insert(path.clone())),
        (true, false) => {
            if !new.is_empty() {
                compare(at, None, first(new), path, changes)?;
            }
            changes.removed.insert(path.clone());
        }
        (false, true) => {
            if !old.is_empty() {
                compare(at, first(old), None, path, changes)?;
            }
            changes.set.insert(path.clone());
        }
    }
    Ok(())
}

/// Adds the declared fields that enclose a field of the set.
pub(super) fn with_enclosing(kind: Type<'_>, set: &Fields) -> Fields {
    let mut all = set.clone();
    for path in set {
        let mut at = kind;
        for (depth, step) in path.iter().enumerate() {
            at = match step.strip_prefix("f:") {
                Some(name) => {
                    if at.declares(name, depth == 0) {
                        all.insert(path[..=depth].to_vec());
                    }
                    at.field(name, depth == 0)
                }
                None => at.item(),
            };
        }
    }
    all
}

// === Objects ===

/// Returns the object with a configuration applied to it.
pub(super) fn merge(kind: Type<'_>, live: &Value, config: &Value) -> Result<Value, NoKey> {
    fn walk(at: Type<'_>, live: &Value, config: &Value, is_root: bool) -> Result<Value, NoKey> {
        match (live, config) {
            (Value::Object(live), Value::Object(config)) if !at.is_atomic_map() => {
                let mut merged = live.clone();
                for (name, config) in config {
                    let value = match live.get(name) {
                        Some(live) => walk(at.field(name, is_root), live, config, false)?,
                        None => config.clone(),
                    };
                    merged.insert(name.clone(), value);
                }
                Ok(Value::Object(merged))
            }
            (Value::Array(live), Value::Array(config)) => {
                let (Some(live_steps), Some(steps)) = (steps(at, live)?, steps(at, config)?) else {
                    return Ok(json!(config));
                };
                let merged = in_order(&live_steps, &steps).into_iter().map(|pair| match pair {
                    (Some(old), Some(new)) => walk(at.item(), &live[old], &config[new], false),
                    (Some(old), None) => Ok(live[old].clone()),
                    (None, new) => Ok(new.map(|new| config[new].clone()).unwrap_or_default()),
                });
                Ok(Value::Array(merged.collect::<Result<_, _>>()?))
            }
            _ => Ok(config.clone()),
        }
    }
    walk(kind, live, config, true)
}

/// Returns the indexes of live and applied items in the order of the merged list, which follows the configuration.
/// Items that are only live keep their place before the next item that is both (`visitListItems` in typed/merge.go).
fn in_order(live: &[String], config: &[String]) -> Vec<(Option<usize>, Option<usize>)> {
    let place = |step: &String| live.iter().position(|it| it == step);
    let (mut all, mut from) = (Vec::new(), 0);
    for (index, step) in config.iter().enumerate() {
        let next_of_both = config[index..].iter().find_map(place);
        while from < live.len() && next_of_both != Some(from) {
            if !config.contains(&live[from]) {
                all.push((Some(from), None));
            }
            from += 1;
        }
        let old = place(step);
        from += usize::from(old == Some(from));
        all.push((old, Some(index)));
    }
    all.extend(
        (from..live.len()).filter(|&at| !config.contains(&live[at])).map(|at| (Some(at), None)),
    );
    all
}

/// Returns the object without these fields.
pub(super) fn without(kind: Type<'_>, object: &Value, gone: &Fields) -> Result<Value, NoKey> {
    fn walk(at: Type<'_>, value: &Value, path: &mut Path, gone: &Fields) -> Result<Value, NoKey> {
        // A map or list that becomes empty is replaced by null, as in typed/remove.go.
        let some = |is_empty: bool, value: Value| if is_empty { Value::Null } else { value };
        match value {
            Value::Object(map) if !at.is_atomic_map() => {
                let mut left = Map::new();
                for (name, value) in map {
                    let below = at.field(name, path.is_empty());
                    path.push(format!("f:{name}"));
                    if !gone.contains(path) {
                        let value = if has_below(gone, path) {
                            walk(below, value, path, gone)?
                        } else {
                            value.clone()
                        };
                        left.insert(name.clone(), value);
                    }
                    path.pop();
                }
                Ok(some(left.is_empty(), Value::Object(left)))
            }
            Value::Array(items) => {
                let Some(steps) = steps(at, items)? else { return Ok(value.clone()) };
                let mut left = Vec::new();
                for (step, item) in steps.into_iter().zip(items) {
                    path.push(step);
                    if !gone.contains(path) {
                        left.push(if has_below(gone, path) {
                            walk(at.item(), item, path, gone)?
                        } else {
                            item.clone()
                        });
                    }
                    path.pop();
                }
                Ok(some(left.is_empty(), Value::Array(left)))
            }
            scalar => Ok(scalar.clone()),
        }
    }
    walk(kind, object, &mut Path::new(), gone)
}

/// Returns whether the set contains a part of the field.
fn has_below(set: &Fields, path: &Path) -> bool {
    set.range(path.clone()..).next().is_some_and(|first| first.starts_with(path))
}

/// Returns the parts of a map or list; `None` for a value that has one owner.
fn parts<'a>(at: Type<'a>, value: &'a Value, is_root: bool) -> Result<Option<Parts<'a>>, NoKey> {
    match value {
        Value::Object(map) if !at.is_atomic_map() => {
            let part = |(name, value): (&'a String, &'a Value)| {
                (format!("f:{name}"), (at.field(name, is_root), vec![value]))
            };
            Ok(Some(map.iter().map(part).collect()))
        }
        Value::Array(items) => {
            let Some(steps) = steps(at, items)? else { return Ok(None) };
            let mut parts = Parts::new();
            for (step, item) in steps.into_iter().zip(items) {
                parts.entry(step).or_insert((at.item(), Vec::new())).1.push(item);
            }
            Ok(Some(parts))
        }
        _ => Ok(None),
    }
}

/// Returns the steps to the items of a list; `None` if the list is atomic.
fn steps(at: Type<'_>, items: &[Value]) -> Result<Option<Vec<String>>, NoKey> {
    let keys = match at.items() {
        Items::Atomic => return Ok(None),
        Items::Set => return Ok(Some(items.iter().map(|item| format!("v:{item}")).collect())),
        Items::Keys(keys) => keys,
    };
    let step = |(index, item): (usize, &Value)| {
        let found = keys.iter().filter_map(|(key, default)| {
            let value = item.get(*key).cloned().or(default.clone())?;
            Some(((*key).to_owned(), value))
        });
        let found: BTreeMap<String, Value> = found.collect();
        if found.is_empty() {
            let keys: Vec<_> = keys.iter().map(|(key, _)| format!("{key:?}")).collect();
            return Err(NoKey(format!(
                "element {index}: associative list with keys has an element that omits all key fields [{}] (and \
                 doesn't have default values for any key fields)",
                keys.join(" ")
            )));
        }
        Ok(format!("k:{}", json!(found)))
    };
    items.iter().enumerate().map(step).collect::<Result<_, _>>().map(Some)
}
