//! Events in the format of the API: events.k8s.io/v1.

use jiff::Timestamp;
use serde::Serialize;

use super::Regarding;
use super::correlate::Job;
use crate::identity::Identity;
use crate::object::{InternedStr, Kind, Meta, ObjectKey, Uid};

/// The part of a response that is read: the metadata, to confirm that it is an Event.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Written {
    metadata: Meta,
}

crate::view!(Written: Kind::namespaced("events.k8s.io", "v1", "Event", "events"));

/// The body of a create.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Meta,
    event_time: String,
    reporting_controller: String,
    reporting_instance: &'a str,
    r#type: &'static str,
    reason: &'a str,
    action: &'a str,
    note: &'a str,
    regarding: Reference<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    api_version: &'a InternedStr,
    kind: &'a InternedStr,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a InternedStr,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
}

/// Returns the key of the Event of `job`: in the object's namespace, or in `default` for a cluster-scoped object (the
/// API server requires `default` or `kube-system`).
pub(super) fn key(job: &Job) -> ObjectKey {
    let namespace = job.said.regarding.key.namespace();
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    ObjectKey::new(namespace, &job.name)
}

/// Returns the Event of `job`, to be created.
pub(super) fn body<'a>(job: &'a Job, program: &Identity, instance: &'a str) -> Body<'a> {
    let said = &job.said;
    let Regarding { api_version, kind, key: about, uid } = &said.regarding;
    Body {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        metadata: Meta::named(key(job)),
        event_time: micro_time(job.at),
        reporting_controller: program.event_source(said.controller),
        reporting_instance: instance,
        r#type: said.kind.as_str(),
        reason: &said.reason,
        action: &said.action,
        note: &said.note,
        regarding: Reference {
            api_version,
            kind,
            namespace: about.namespace(),
            name: about.name(),
            uid: uid.is_some().then_some(*uid),
        },
    }
}

/// Formats a metav1.MicroTime: exactly six digits after the point.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}
