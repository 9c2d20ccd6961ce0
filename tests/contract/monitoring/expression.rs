//! The expressions of the dashboard and the alerts, and the series that they name.

use std::fmt;

use serde_json::Value;

use super::COMPONENT;

/// One or several series: a name and the conditions on its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    /// Including the braces.
    pub labels: String,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.labels)
    }
}

/// Every expression of the dashboard's panels.
pub fn dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{COMPONENT}/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let all: Vec<_> = targets.map(|t| t["expr"].as_str().unwrap().to_owned()).collect();
    assert!(!all.is_empty(), "the dashboard shows nothing");
    all
}

/// Every alert's expression.
pub fn alerts() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{COMPONENT}/prometheus-rule.yaml")).unwrap();
    let rules: Value = serde_yaml_ng::from_str(&text).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let all: Vec<_> = rules.map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    assert!(!all.is_empty(), "there are no alerts");
    all
}

/// Returns the names of the series in an expression. Each must have a label selector.
pub fn names(expression: &str) -> Vec<String> {
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "{expression} names no series");
    for selector in &selectors {
        let job = ["job=\"workload-operator\"", "job=~\"$job\""];
        assert!(job.iter().any(|job| selector.labels.contains(job)), "{selector} of which job?");
    }
    selectors.into_iter().map(|selector| selector.name).collect()
}

/// Returns every selector in an expression: a name followed by braces. A name that ends like a series but has
/// no braces would be missed, so it is an error.
pub fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    let mut without = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let start = before.rfind(|c| !letter(c)).map_or(0, |at| at + 1);
        let end = end_of_labels(after);
        let labels = format!("{{{}}}", &after[..end]);
        found.push(Selector { name: before[start..].to_owned(), labels });
        without.push_str(&before[..start]);
        rest = &after[end + 1..];
    }
    without.push_str(rest);
    for suffix in ["_total", "_seconds", "_bucket", "_sum", "_count", "_status", "_live", "_info"] {
        assert!(!without.contains(suffix), "{expression} has a name without braces");
    }
    found
}

/// Returns the position of the closing brace; quoted ones do not count.
fn end_of_labels(text: &str) -> usize {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '}' if !quoted => return at,
            _ => {}
        }
    }
    panic!("the braces do not close: {text}")
}

#[test]
fn selectors_are_found_anywhere_in_an_expression() {
    let found = selectors(r#"sum by (a) (rate(x_total{a="}"}[5m])) / on (job) y_live{b="c"} > 0"#);
    let found: Vec<String> = found.iter().map(Selector::to_string).collect();
    assert_eq!(found, [r#"x_total{a="}"}"#, r#"y_live{b="c"}"#]);
}
