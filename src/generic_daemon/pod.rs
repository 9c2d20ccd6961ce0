//! The pods of a GenericDaemon, with directories of their node.
//!
//! Guarantees
//! - A path is used only if the administrator allows it or a directory above it (`--allowed-host-paths`).
//! - The container cannot write to the directories or to mounts below them, unless the GenericDaemon allows it.
//!   (Before Kubernetes 1.31, or if the node's runtime lacks the feature, mounts below are writable.)
//! - A volume's name is derived from its path and type, so another order of the list restarts no pod.

use serde_json::{Value, json};

use super::{GenericDaemon, HostPath};
use crate::object::{InternedStr, Labels};
use crate::workload::container::{pull_policy, security};
use crate::workload::labels::fnv1a;
use crate::workload::{
    Affinity, Container, MatchExpression, NodeAffinity, NodeSelector, NodeSelectorTerm,
    PodSecurity, PodSpec, Seccomp,
};

/// The container's name.
const DAEMON: &str = "daemon";

/// Returns a pod without token or privilege escalation, and with the allowed directories of the node only. The
/// image chooses its user, because many daemons must be root.
pub(super) fn pod(daemon: &GenericDaemon) -> PodSpec {
    let image = &daemon.spec.image;
    let (volumes, volume_mounts) = volumes(&daemon.spec.host_paths);
    let container = Container {
        name: InternedStr::new(DAEMON),
        image: image.clone(),
        image_pull_policy: pull_policy(&daemon.spec.image_pull_policy),
        command: daemon.spec.command.clone(),
        args: daemon.spec.args.clone(),
        env: daemon.spec.envs.clone(),
        resources: daemon.spec.resources.clone(),
        volume_mounts,
        security_context: Some(Box::new(security(
            &daemon.spec.security_profile,
            daemon.spec.run_as_user,
        ))),
        ..Container::default()
    };
    let (node_selector, affinity) = nodes(daemon.spec.label.as_deref());
    PodSpec {
        containers: [container].into(),
        volumes,
        security_context: Some(PodSecurity {
            seccomp_profile: Some(Seccomp { kind: InternedStr::new("RuntimeDefault") }),
            ..PodSecurity::default()
        }),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        node_selector,
        affinity,
        ..PodSpec::default()
    }
}

/// Returns the requirements for nodes with the label. They are a node selector where it can express the label,
/// because `kubectl get daemonset` shows it.
fn nodes(label: Option<&str>) -> (Labels, Option<Affinity>) {
    match label.map(|label| label.split_once('=').ok_or(label)) {
        None => (Labels::default(), None),
        Some(Ok(pair)) => ([pair].into_iter().collect(), None),
        Some(Err(key)) => {
            let exists = MatchExpression {
                key: InternedStr::new(key),
                operator: InternedStr::new("Exists"),
                values: Box::default(),
            };
            let term = NodeSelectorTerm { match_expressions: [exists].into() };
            let required = Some(NodeSelector { node_selector_terms: [term].into() });
            (Labels::default(), Some(Affinity { node_affinity: Some(NodeAffinity { required }) }))
        }
    }
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
