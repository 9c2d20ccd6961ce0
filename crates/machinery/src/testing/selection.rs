//! Selectors of lists, watches and deletions of collections: `labelSelector` and `fieldSelector`.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector, SelectorExt};
use serde_json::Value;

use super::history::Change;
use super::request::{Ask, Refusal, status_answer};

/// The selectors of a request.
#[derive(Default)]
pub(super) struct Selection {
    labels: Selector,
    /// The terms of the field selector.
    fields: Vec<FieldTerm>,
}

struct FieldTerm {
    /// The path, such as `metadata.name`.
    path: String,
    is_equal: bool,
    value: String,
}

/// Supported fields of field selectors, by resource; the first entry applies to all resources.
const FIELDS: [(&str, &[&str]); 3] = [
    ("", &["metadata.name", "metadata.namespace"]),
    ("/api/v1/pods", &["spec.nodeName", "status.phase"]),
    ("/api/v1/secrets", &["type"]),
];

impl Selection {
    pub(super) fn of(ask: &Ask) -> Result<Selection, Refusal> {
        let bad = |why: String| Box::new(status_answer(400, "BadRequest", &why));
        let labels = terms(ask.get("labelSelector").unwrap_or_default());
        let labels = labels.into_iter().map(|term| expression(&term).ok_or(term));
        let labels: Result<Vec<_>, _> = labels.collect();
        let labels = labels.map_err(|term| bad(format!("unable to parse requirement: {term}")))?;
        let fields = terms(ask.get("fieldSelector").unwrap_or_default());
        let fields = fields.into_iter().map(|term| field(&term).ok_or(term));
        let fields: Result<Vec<_>, _> = fields.collect();
        let fields = fields.map_err(|term| bad(format!("invalid field selector: {term}")))?;
        Ok(Selection { labels: labels.into_iter().collect(), fields })
    }

    /// Returns whether it uses a field that is not modelled for this resource.
    pub(super) fn beyond(&self, resource: &str) -> bool {
        let known = |path: &str| {
            FIELDS
                .iter()
                .any(|(of, paths)| (of.is_empty() || *of == resource) && paths.contains(&path))
        };
        self.fields.iter().any(|term| !known(&term.path))
    }

    pub(super) fn is_all(&self) -> bool {
        self.labels.selects_all() && self.fields.is_empty()
    }

    /// Returns whether it selects one object by its name.
    pub(super) fn is_of_one(&self) -> bool {
        self.fields.iter().any(|term| term.path == "metadata.name" && term.is_equal)
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        if self.is_all() {
            return true;
        }
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels: BTreeMap<String, String> = labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        let is_so = |term: &FieldTerm| {
            let value = term.path.split('.').fold(object, |at, name| &at[name]);
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            (value == term.value) == term.is_equal
        };
        self.labels.matches(&labels) && self.fields.iter().all(is_so)
    }

    /// Returns the change as a watch with these selectors shows it. An object that no longer matches is shown as
    /// deleted.
    pub(super) fn shown(&self, mut change: Change) -> Option<Change> {
        let now = change.verb != "DELETED" && self.matches(&change.object);
        let before = change.before.as_ref().is_some_and(|before| self.matches(before));
        match (before, now) {
            (_, true) => change.verb = if before { "MODIFIED" } else { "ADDED" },
            (true, false) => {
                let before = change.before.as_ref()?;
                change.object = super::history::buried(before, change.version);
                change.verb = "DELETED";
            }
            (false, false) => return None,
        }
        Some(change)
    }
}

/// Splits a selector at the commas outside parentheses.
fn terms(selector: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut depth = 0;
    for character in selector.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match terms.last_mut() {
            Some(term) if character != ',' || depth > 0 => term.push(character),
            _ => terms.push(String::new()),
        }
    }
    terms.into_iter().map(|term| term.trim().to_owned()).filter(|term| !term.is_empty()).collect()
}

/// Parses `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` or `!a`.
fn expression(term: &str) -> Option<Expression> {
    let owned = |text: &str| text.trim().to_owned();
    if let Some((key, value)) = term.split_once("!=") {
        return Some(Expression::NotEqual(owned(key), owned(value)));
    }
    if let Some((key, value)) = term.split_once('=') {
        return Some(Expression::Equal(owned(key), owned(value.trim_start_matches('='))));
    }
    let set = |values: &str| -> Option<BTreeSet<String>> {
        let values = values.trim().strip_suffix(')')?;
        Some(values.split(',').map(owned).collect())
    };
    if let Some((key, values)) = term.split_once('(') {
        return match key.trim().rsplit_once(' ')? {
            (key, "in") => Some(Expression::In(owned(key), set(values)?)),
            (key, "notin") => Some(Expression::NotIn(owned(key), set(values)?)),
            _ => None,
        };
    }
    if term.contains(' ') {
        return None;
    }
    Some(match term.strip_prefix('!') {
        Some(key) => Expression::DoesNotExist(owned(key)),
        None => Expression::Exists(owned(term)),
    })
}

fn field(term: &str) -> Option<FieldTerm> {
    let (path, is_equal, value) = match term.split_once("!=") {
        Some((path, value)) => (path, false, value),
        None => {
            let (path, value) = term.split_once('=')?;
            (path, true, value.trim_start_matches('='))
        }
    };
    Some(FieldTerm { path: path.to_owned(), is_equal, value: value.to_owned() })
}
