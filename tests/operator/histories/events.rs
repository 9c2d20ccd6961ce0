//! The laws of Events (E1, E2): known words, sentences that fit, and who publishes them.

use serde_json::Value;
use workload_operator::workload::Action;

/// The laws that this Event breaks; empty if it is Kubernetes' own.
pub fn breaches(event: &Value) -> Vec<String> {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let (reason, action) = (text("reason"), text("action"));
    let regarding = event["regarding"]["kind"].as_str().unwrap_or_default();
    if !["Memcached", "GenericDaemon", "App"].contains(&regarding) {
        return Vec::new();
    }
    let page = include_str!("../../../docs/REASONS.md");
    let known_reason = page.contains(&format!("\n| `{reason}` | "));
    let known_action = Action::ALL.iter().any(|known| known.as_str() == action);
    let fits = |field: &str, most: usize| !text(field).is_empty() && text(field).len() <= most;
    let laws = [
        (known_reason && fits("reason", 128), "E1: a reason that is not documented"),
        (known_action && fits("action", 128), "E1: an action that is not documented"),
        (fits("note", 1024), "E1: a note that does not fit"),
        (["Normal", "Warning"].contains(&text("type")), "E1: a type"),
        (fits("reportingController", 128), "E1: nobody reports it"),
        (fits("reportingInstance", 128), "E1: no process reports it"),
        (!text("note").starts_with("About to"), "E2: it tells of an intention, not of a result"),
    ];
    laws.into_iter().filter(|(kept, _)| !kept).map(|(_, law)| law.to_owned()).collect()
}
