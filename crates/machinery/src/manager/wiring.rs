//! Wiring faults, found before the program starts.

use std::any::type_name;

use crate::informer::BuildError;
use crate::object::leak;

/// A wiring fault. Its text names the controller, and the line to add or to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WiringError(pub(super) String);

impl From<BuildError> for WiringError {
    fn from(error: BuildError) -> WiringError {
        WiringError(error.to_string())
    }
}

/// Returns the name of a view's type as it appears in the program's code.
pub(super) fn view<V>() -> &'static str {
    let path = type_name::<V>();
    let last = |path: &'static str| path.rsplit("::").next().unwrap_or(path);
    match path.strip_suffix('>').and_then(|path| path.split_once('<')) {
        None => last(path),
        Some((outer, inner)) => leak(format!("{}<{}>", last(outer), last(inner))),
    }
}

/// Returns the faults of the controllers' names.
pub(super) fn of_names(names: &[&'static str]) -> Vec<WiringError> {
    let mut faults = Vec::new();
    if names.is_empty() {
        let text = "there is no controller: add `manager.controller::<KIND>().reconcile(FUNCTION)`";
        faults.push(WiringError(text.to_owned()));
    }
    for (at, name) in names.iter().enumerate() {
        if !is_dns_label(name) {
            faults.push(WiringError(format!(
                "a controller cannot be named {name:?}: a name has 1 to 63 lower-case letters, digits and dashes, with \
                 no dash at its ends; choose one with `.named(\"…\")`"
            )));
        }
        if names[..at].contains(name) {
            faults.push(WiringError(format!(
                "two controllers are named {name}: give one of them another name with `.named(\"…\")`"
            )));
        }
    }
    faults
}

/// Returns whether kinds of this group are custom resources.
pub(super) fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Returns whether `name` is a DNS name, a slash and a word, as the API server requires of a finalizer.
pub(super) fn is_qualified(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(prefix, rest)| is_dns_name(prefix) && is_word(rest))
}

/// Returns whether this is the name part of a label key, or a label value that is not empty.
pub(crate) fn is_word(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let fits = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    let ends = text.starts_with(is_end) && text.ends_with(is_end);
    text.len() <= 63 && ends && text.chars().all(fits)
}

/// Returns whether a name is a DNS-1123 subdomain.
pub(crate) fn is_dns_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Returns whether a part of a name is a DNS-1123 label.
fn is_dns_label(label: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.len() <= 63
        && label.chars().all(|c| is_end(c) || c == '-')
        && label.starts_with(is_end)
        && label.ends_with(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_names_are_valid_and_unique() {
        assert_eq!(of_names(&["foo", "bar-2"]), []);
        let fault = |names: &[&'static str]| of_names(names)[0].to_string();
        assert!(fault(&[]).starts_with("there is no controller"));
        assert!(fault(&["foo", "foo"]).starts_with("two controllers are named foo"));
        assert!(fault(&["Foo"]).starts_with("a controller cannot be named \"Foo\""));
        assert!(fault(&["-foo"]).starts_with("a controller cannot be named \"-foo\""));
    }

    #[test]
    fn a_finalizer_has_a_domain_and_a_name() {
        assert!(is_qualified("example.com/website"));
        for wrong in [
            "website",
            "/website",
            "example.com/",
            "exa mple/website",
            "-a/b",
            "A.example/x",
            "a..b/x",
        ] {
            assert!(!is_qualified(wrong), "{wrong}");
        }
    }
}
