//! Argo CD's health checks: one script for all kinds, and what it says about each status.

use serde_json::{Value, json};

use crate::lua::health;
use crate::packages::{crds, is_or_becomes, read};

const FOLDER: &str = "artifacts/argocd";

/// The group and kind of each CRD.
fn kinds() -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    crds()
        .iter()
        .map(|crd| (word(&crd["spec"]["group"]), word(&crd["spec"]["names"]["kind"])))
        .collect()
}

#[test]
fn argocd_cm_has_the_health_check_of_each_kind() {
    let text = read(&format!("{FOLDER}/health.lua"));
    let mut config = String::from(
        "# kubectl -n argocd patch configmap argocd-cm --patch-file artifacts/argocd/argocd-cm.yaml\n\
         # Written by hack/update-codegen.sh from health.lua.\ndata:\n",
    );
    for (group, kind) in kinds() {
        config.push_str(&format!("  resource.customizations.health.{group}_{kind}: |\n"));
        for line in text.lines() {
            let line = format!("    {line}");
            config.push_str(line.trim_end());
            config.push('\n');
        }
    }
    is_or_becomes(&format!("{FOLDER}/argocd-cm.yaml"), &config);
    let read_back: Value = serde_yaml_ng::from_str(&config).unwrap();
    for (group, kind) in kinds() {
        let key = format!("resource.customizations.health.{group}_{kind}");
        assert_eq!(read_back["data"][&key], json!(text));
    }
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
fn argo_cd_shows_what_the_status_says() {
    let text = read(&format!("{FOLDER}/health.lua"));
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
        // Something is wrong, and the operator tries again.
        (
            object(2, &[rolling, reconciling, ("Degraded", "True", "ApiError")]),
            "Progressing",
            "Ready",
        ),
        // Its pods served, and do not any more.
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
    let text = read(&format!("{FOLDER}/health.lua"));
    for crd in crds() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let status = &schema["properties"]["status"]["default"];
        assert!(status.is_object());
        let object = json!({"metadata": {"generation": 1}, "status": status});
        assert_eq!(health(&text, &object).0, "Progressing", "{status:#}");
    }
}
