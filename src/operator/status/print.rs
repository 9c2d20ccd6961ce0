//! The diagnosis for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::args::KindName;
use super::cause::{self, Cause, Diagnosis};
use super::facts::Facts;
use crate::object::ObjectKey;
use crate::operator::check::one_line;

pub(super) fn as_text(
    kind: KindName,
    key: &ObjectKey,
    facts: &Facts,
    diagnosis: &Diagnosis,
) -> String {
    let Diagnosis { cause, detail } = diagnosis;
    let kind = kind.kind().kind;
    let mut text = format!("{kind} {key}: {}: {}\n", cause.word(), one_line(detail));
    if !cause.is_fine() {
        writeln!(text, "  next: {}", cause.next()).expect("a String takes all that is written");
    }
    for condition in cause::conditions(&facts.object) {
        let word = |field: &str| one_line(condition[field].as_str().unwrap_or_default());
        let line = format!(
            "  {:<12} {:<8} {:<18} {}",
            word("type"),
            word("status"),
            word("reason"),
            word("message")
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !matches!(cause, Cause::Paused | Cause::Deleting) && facts.child.is_none() {
        text.push_str("  It has no children yet.\n");
    }
    for pod in &facts.pods {
        let name = one_line(pod["metadata"]["name"].as_str().unwrap_or_default());
        let node = one_line(pod["spec"]["nodeName"].as_str().unwrap_or("no node"));
        let line = format!("  pod {name}  {node}  {}\n", one_line(&cause::pod_state(pod)));
        text.push_str(&line);
    }
    text
}

pub(super) fn as_json(
    kind: KindName,
    key: &ObjectKey,
    facts: &Facts,
    diagnosis: &Diagnosis,
) -> String {
    let Diagnosis { cause, detail } = diagnosis;
    let next = (!cause.is_fine()).then(|| cause.next());
    let conditions: Vec<&Value> = cause::conditions(&facts.object).collect();
    let pods: Vec<Value> = facts
        .pods
        .iter()
        .map(|pod| {
            json!({"name": pod["metadata"]["name"], "node": pod["spec"]["nodeName"],
                "state": cause::pod_state(pod)})
        })
        .collect();
    let answer = json!({
        "kind": kind.kind().kind, "namespace": &**key.namespace(), "name": &**key.name(),
        "fine": cause.is_fine(), "cause": cause.word(), "detail": detail, "next": next,
        "conditions": conditions, "children": facts.child.is_some(), "pods": pods,
    });
    format!("{answer:#}\n")
}
