//! Argo CD's health checks: one script for all kinds, and its result for each status.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::lua::health;
use crate::packages::{crds, read};

/// The health check, which is the same for each kind.
fn script() -> String {
    let config: Value = serde_yaml_ng::from_str(&read("artifacts/argocd/argocd-cm.yaml")).unwrap();
    let checks = config["data"].as_object().unwrap();
    let key = |crd: &Value| {
        let (group, kind) = (&crd["spec"]["group"], &crd["spec"]["names"]["kind"]);
        let [group, kind] = [group, kind].map(|word| word.as_str().unwrap());
        format!("resource.customizations.health.{group}_{kind}")
    };
    assert_eq!(checks.keys().cloned().collect::<BTreeSet<_>>(), crds().iter().map(key).collect());
    let scripts: BTreeSet<&str> = checks.values().filter_map(Value::as_str).collect();
    assert_eq!(scripts.len(), 1);
    scripts.into_iter().collect()
}

/// An object whose status refers to generation `seen` and has these conditions.
fn object(seen: i64, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status, reason)| {
            json!({"type": kind, "status": status, "reason": reason, "message": format!("{kind} {reason}")})
        })
        .collect();
    json!({"metadata": {"generation": 2},
        "status": {"observedGeneration": seen, "conditions": conditions}})
}

#[test]
fn argo_cd_shows_the_health_in_the_status() {
    let text = script();
    let ready = ("Ready", "True", "AllReplicasReady");
    let rolling = ("Ready", "False", "RollingOut");
    let reconciling = ("Reconciling", "True", "RollingOut");
    for (object, status, message) in [
        (json!({"metadata": {"generation": 1}}), "Progressing", "No controller"),
        (json!({"metadata": {"generation": 1}, "status": {}}), "Progressing", "No controller"),
        (object(2, &[]), "Progressing", "No controller"),
        (object(2, &[ready]), "Healthy", "Ready AllReplicasReady"),
        // The status of an older spec.
        (object(1, &[ready]), "Progressing", "No controller"),
        (object(1, &[rolling, ("Stalled", "True", "Invalid")]), "Progressing", "No controller"),
        (object(2, &[rolling, reconciling]), "Progressing", "Ready RollingOut"),
        // There is a problem, and the operator retries.
        (
            object(2, &[rolling, reconciling, ("Degraded", "True", "ApiError")]),
            "Progressing",
            "Ready",
        ),
        // Its pods served before.
        (
            object(
                2,
                &[("Ready", "False", "CrashLoopBackOff"), ("Degraded", "True", "CrashLoopBackOff")],
            ),
            "Degraded",
            "Ready CrashLoopBackOff",
        ),
        (object(2, &[rolling, ("Stalled", "True", "Invalid")]), "Degraded", "Stalled Invalid"),
        (object(2, &[("Stalled", "False", "Invalid"), ready]), "Healthy", "Ready"),
        (object(2, &[("Ready", "False", "Paused")]), "Suspended", "Ready Paused"),
    ] {
        let (said, why) = health(&text, &object);
        assert_eq!(said, status, "{object:#}");
        assert!(why.starts_with(message), "{why} of {object:#}");
    }
}

/// The default status, which the API server gives to an object that no controller has seen.
#[test]
fn a_new_object_of_each_kind_is_progressing() {
    let text = script();
    for crd in crds() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let status = &schema["properties"]["status"]["default"];
        assert!(status.is_object());
        let object = json!({"metadata": {"generation": 1}, "status": status});
        assert_eq!(health(&text, &object).0, "Progressing", "{status:#}");
    }
}
