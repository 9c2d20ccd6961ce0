//! The diagnosis for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::args::KindName;
use super::cause::{self, Diagnosis};
use super::facts::Facts;
use crate::object::ObjectKey;
use crate::operator::check::one_line;

pub(super) fn as_text(
    kind: KindName,
    key: &ObjectKey,
    facts: &Facts,
    diagnosis: &Diagnosis,
) -> String {
    let Diagnosis { cause, detail, is_fine } = diagnosis;
    let kind = kind.kind().kind;
    let mut text = format!("{kind} {key}: {}: {}\n", one_line(cause), one_line(detail));
    if !is_fine {
        writeln!(text, "  next: {}", diagnosis.next()).expect("a String takes all that is written");
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
    if !["Paused", "Deleting"].contains(&&**cause) && facts.child.is_none() {
        match &facts.unreadable {
            Some(why) => writeln!(text, "  Its children may not be read: {}", one_line(why))
                .expect("a String takes all that is written"),
            None => text.push_str("  It has no children yet.\n"),
        }
    }
    for pod in &facts.pods {
        let (name, node) = (one_line(pod.name()), one_line(pod.node().unwrap_or("no node")));
        let line = format!("  pod {name}  {node}  {}\n", one_line(&pod.state()));
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
    let Diagnosis { cause, detail, is_fine } = diagnosis;
    let next = (!is_fine).then(|| diagnosis.next());
    let conditions: Vec<&Value> = cause::conditions(&facts.object).collect();
    let pods = facts.pods.iter();
    let pods: Vec<Value> = pods
        .map(|pod| json!({"name": pod.name(), "node": pod.node(), "state": pod.state()}))
        .collect();
    let answer = json!({
        "kind": kind.kind().kind, "namespace": &**key.namespace(), "name": &**key.name(),
        "fine": is_fine, "cause": cause, "detail": detail, "next": next,
        "conditions": conditions, "children": facts.child.is_some(),
        "unreadable": facts.unreadable, "pods": pods,
    });
    format!("{answer:#}\n")
}
