//! The pods of a GenericDaemon, with directories of their node.
//!
//! Guarantees
//! - A path is used only if the administrator allows it or a directory above it (`--allowed-host-paths`).
//! - The container cannot write to the directories or to mounts below them, unless the GenericDaemon allows it.
//!   (Before Kubernetes 1.31, or if the node's runtime lacks the feature, mounts below are writable.)
//! - A volume's name is derived from its path and type, so another order of the list restarts no pod.

use serde_json::{Value, json};

use super::{HostPath, Spec};
use crate::object::InternedStr;
use crate::workload::container::{pull_policy, security};
use crate::workload::labels::{Identity, fnv1a};
use crate::workload::pod_template::{self, object};

/// The container's name.
const DAEMON: &str = "daemon";

/// Returns the pod template: without token or privilege escalation, and with the allowed directories of the node only,
/// unless the template of the spec says otherwise. The image chooses its user, because many daemons must be root.
pub(super) fn template(identity: &Identity<'_>, spec: &Spec) -> Value {
    let (volumes, volume_mounts) = volumes(&spec.host_paths);
    let container = object([
        ("name", json!(DAEMON)),
        ("image", json!(spec.image)),
        ("imagePullPolicy", json!(pull_policy(&spec.image_pull_policy))),
        ("command", json!(spec.command)),
        ("args", json!(spec.args)),
        ("env", json!(spec.envs)),
        ("resources", json!(spec.resources)),
        ("volumeMounts", json!(volume_mounts)),
        ("securityContext", security(&spec.security_profile, spec.run_as_user)),
    ]);
    let pod = object([
        ("containers", json!([container])),
        ("volumes", json!(volumes)),
        ("securityContext", json!({ "seccompProfile": { "type": "RuntimeDefault" } })),
        ("automountServiceAccountToken", json!(false)),
        ("enableServiceLinks", json!(false)),
    ]);
    let (settings, over) = (spec.pod.as_deref(), spec.pod_template.as_deref());
    let mut template = pod_template::template(identity, pod, settings, over);
    if let Some(label) = &spec.label {
        select(&mut template["spec"], label);
    }
    template
}

/// Requires the label of a pod's node. It is a node selector where that can express the label, because
/// `kubectl get daemonset` shows it; otherwise each alternative of the affinity gets the requirement.
fn select(pod: &mut Value, label: &str) {
    let Some((key, value)) = label.split_once('=') else {
        let exists = json!({ "key": label, "operator": "Exists" });
        let affinity = &mut pod["affinity"]["nodeAffinity"];
        let required = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = &mut required["nodeSelectorTerms"];
        if terms.is_null() {
            *terms = json!([{}]);
        }
        for term in terms.as_array_mut().into_iter().flatten() {
            match term["matchExpressions"].as_array_mut() {
                Some(expressions) => expressions.push(exists.clone()),
                None => term["matchExpressions"] = json!([exists]),
            }
        }
        return;
    };
    pod["nodeSelector"][key] = json!(value);
}

// === Host paths ===

/// Returns why the first refused path is not allowed, if there is one.
pub(super) fn refusal(paths: &[HostPath], allowed: &[InternedStr]) -> Option<String> {
    let is_allowed = |path: &str| allowed.iter().any(|directory| is_below(path, directory));
    let refused = paths.iter().find(|entry| !is_allowed(&entry.path))?;
    let allowed = match allowed {
        [] => "no path".to_owned(),
        some => {
            let names: Vec<&str> = some.iter().map(InternedStr::as_str).collect();
            format!("only {}", names.join(", "))
        }
    };
    Some(format!(
        "hostPaths contains {}, but the operator's --allowed-host-paths permits {allowed}",
        refused.path
    ))
}

/// Returns whether `path` is the directory or below it. The schema admits no `..` in a path.
fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the volumes of the pod and the mounts of the container, both by name.
pub(super) fn volumes(paths: &[HostPath]) -> (Box<[Value]>, Box<[Value]>) {
    let kind = |entry: &HostPath| {
        if entry.kind.is_empty() { InternedStr::new("Directory") } else { entry.kind.clone() }
    };
    let name = |entry: &HostPath| {
        let both = format!("{}:{}", entry.path, kind(entry));
        format!("host-{:016x}", fnv1a(both.as_bytes()))
    };
    let volume = |entry: &HostPath| {
        let kind = kind(entry);
        json!({ "name": name(entry), "hostPath": { "path": entry.path, "type": kind } })
    };
    let mount = |entry: &HostPath| {
        let mut mount = json!({ "name": name(entry), "mountPath": entry.mount_path });
        if entry.read_only != Some(false) {
            mount["readOnly"] = json!(true);
            mount["recursiveReadOnly"] = json!("IfPossible");
        }
        mount
    };
    let mut sorted: Vec<&HostPath> = paths.iter().collect();
    sorted.sort_by_key(|entry| (entry.path.clone(), kind(entry), entry.mount_path.clone()));
    let mounts = sorted.iter().map(|entry| mount(entry)).collect();
    sorted.dedup_by_key(|entry| (entry.path.clone(), kind(entry)));
    (sorted.into_iter().map(volume).collect(), mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[(&str, &str)]) -> Vec<HostPath> {
        let entry = |(path, mount_path): &(&str, &str)| HostPath {
            kind: InternedStr::default(),
            path: InternedStr::new(path),
            mount_path: InternedStr::new(mount_path),
            read_only: None,
        };
        all.iter().map(entry).collect()
    }

    #[test]
    fn an_allowed_path_includes_everything_below_it() {
        let refused = |path: &str, allowed: &[&str]| {
            let allowed: Vec<InternedStr> =
                allowed.iter().map(|path| InternedStr::new(path)).collect();
            refusal(&paths(&[(path, "/host")]), &allowed)
        };
        for path in ["/var/log", "/var/log/pods/a"] {
            assert_eq!(refused(path, &["/run", "/var/log/"]), None);
            assert_eq!(refused(path, &["/"]), None);
        }
        assert_eq!(
            refused("/var/logs", &["/run", "/var/log"]).unwrap(),
            "hostPaths contains /var/logs, but the operator's --allowed-host-paths permits only /run, /var/log"
        );
        assert!(refused("/var", &["/var/log"]).is_some());
        assert!(refused("/var", &[]).unwrap().ends_with("permits no path"));
    }

    #[test]
    fn a_path_with_two_mounts_is_one_volume_in_any_order() {
        let one = volumes(&paths(&[("/var/log", "/a"), ("/run", "/b"), ("/var/log", "/c")]));
        let other = volumes(&paths(&[("/var/log", "/c"), ("/var/log", "/a"), ("/run", "/b")]));
        assert_eq!(one, other);
        assert_eq!((one.0.len(), one.1.len()), (2, 3));
        let is_read_only =
            |mount: &Value| mount["readOnly"] == true && mount["recursiveReadOnly"] == "IfPossible";
        assert!(one.1.iter().all(is_read_only));
        assert_eq!(one.1[1]["name"], one.1[2]["name"]);
    }

    #[test]
    fn a_container_can_write_only_to_writable_host_paths() {
        let mut all = paths(&[("/var/log", "/a")]);
        all[0].read_only = Some(false);
        assert_eq!(volumes(&all).1[0].get("readOnly"), None);
        assert_eq!(volumes(&all).1[0].get("recursiveReadOnly"), None);
    }
}
