//! What blocks an object. Pure functions.

use serde_json::Value;

use super::facts::Facts;

macro_rules! causes {
    ($($cause:ident: $next:literal,)*) => {
        /// What keeps an object from being ready, if anything does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Cause { $($cause,)* }

        impl Cause {
            pub(super) fn word(self) -> &'static str {
                match self { $(Cause::$cause => stringify!($cause),)* }
            }

            /// What a person can do about it.
            pub(super) fn next(self) -> &'static str {
                match self { $(Cause::$cause => $next,)* }
            }
        }
    };
}

causes! {
    Ready: "nothing",
    ScaledToZero: "raise spec.size or spec.replicas",
    Deleting: "wait; the operator removes its finalizers",
    Paused: "remove the annotation workload-operator.example.com/paused",
    Unseen: "workload-operator check: does the operator run, and may it work in this namespace?",
    ForeignObject: "delete or rename the object in the way, or this one",
    Forbidden: "workload-operator check under the operator's account; kubectl apply -k artifacts/rbac",
    Quota: "kubectl describe quota; raise it or free some of it",
    PodSecurity: "kubectl label namespace NAME pod-security.kubernetes.io/enforce=LEVEL, if its pods may do that",
    BadImage: "correct the image's name or give access to its registry",
    CrashLoop: "kubectl logs POD --previous",
    Taint: "kubectl taint node NODE KEY-, or choose other nodes",
    Unschedulable: "kubectl describe pod POD",
    NoMatchingNode: "kubectl label node NODE KEY=VALUE",
    Deadline: "kubectl describe pod POD shows why a pod does not become ready",
    Contested: "kubectl get CHILD -o yaml --show-managed-fields shows who changes it; stop one of the two",
    Refused: "do what the message says",
    RollingOut: "wait; kubectl get pods -w",
}

/// The cause, with a sentence of details.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) cause: Cause,
    pub(super) detail: String,
}

// === impl Cause ===

impl Cause {
    /// Whether the object is in its desired state.
    pub(super) fn is_fine(self) -> bool {
        matches!(self, Cause::Ready | Cause::ScaledToZero)
    }

    fn because(self, detail: impl Into<String>) -> Diagnosis {
        Diagnosis { cause: self, detail: detail.into() }
    }
}

/// The one cause that blocks.
pub(super) fn diagnose(facts: &Facts) -> Diagnosis {
    intended(&facts.object)
        .or_else(|| refused(&facts.object))
        .or_else(|| pods_not_made(facts))
        .or_else(|| pods_not_running(&facts.pods))
        .or_else(|| nowhere(facts))
        .unwrap_or_else(|| summary(&facts.object))
}

/// What somebody intended, or what no operator has seen yet.
fn intended(object: &Value) -> Option<Diagnosis> {
    let meta = &object["metadata"];
    if meta["deletionTimestamp"].is_string() {
        let held = words(&meta["finalizers"]).join(", ");
        return Some(Cause::Deleting.because(format!("it is being deleted; held by {held}")));
    }
    if meta["annotations"]["workload-operator.example.com/paused"] == "true" {
        return Some(Cause::Paused.because("an annotation pauses it, so nothing is written"));
    }
    let (seen, newest) =
        (object["status"]["observedGeneration"].as_i64(), meta["generation"].as_i64());
    (seen < newest).then(|| {
        Cause::Unseen.because(match seen {
            Some(-1) | None => "no operator has looked at it yet".to_owned(),
            Some(_) => "no operator has looked at its newest spec yet".to_owned(),
        })
    })
}

/// What the operator could not write, according to its condition.
fn refused(object: &Value) -> Option<Diagnosis> {
    let ready = condition(object, "Ready")?;
    let message = ready["message"].as_str().unwrap_or_default();
    let cause = match ready["reason"].as_str()? {
        "ErrResourceExists" => Cause::ForeignObject,
        "QuotaExceeded" => Cause::Quota,
        "Forbidden" => Cause::Forbidden,
        "Contested" => Cause::Contested,
        "ImageMissing" | "Invalid" | "FieldImmutable" | "ApiError" | "AwaitingDeletion" => {
            Cause::Refused
        }
        _ => return None,
    };
    Some(cause.because(message))
}

/// What keeps Kubernetes from creating the child's pods.
fn pods_not_made(facts: &Facts) -> Option<Diagnosis> {
    let child = facts.child.as_ref()?;
    let failure = condition(child, "ReplicaFailure").filter(|c| c["status"] == "True");
    let short = count(child, "currentNumberScheduled") < count(child, "desiredNumberScheduled");
    let told = failure.and_then(|failure| failure["message"].as_str());
    let message = told.or(facts.warnings.first().map(String::as_str).filter(|_| short))?;
    let cause = if message.contains("exceeded quota") {
        Cause::Quota
    } else if message.contains("violates PodSecurity") {
        Cause::PodSecurity
    } else if message.contains("forbidden") {
        Cause::Forbidden
    } else {
        Cause::Refused
    };
    Some(cause.because(message))
}

/// What keeps pods from running: the cause that most pods share, or the first such cause in a tie.
fn pods_not_running(pods: &[Value]) -> Option<Diagnosis> {
    let trouble = pods.iter().filter_map(pod_trouble);
    let mut found: Vec<(Cause, String, usize)> = Vec::new();
    for (cause, detail) in trouble {
        match found.iter_mut().find(|(known, ..)| *known == cause) {
            Some((_, _, count)) => *count += 1,
            None => found.push((cause, detail, 1)),
        }
    }
    let (cause, detail, count) = found.into_iter().rev().max_by_key(|(_, _, count)| *count)?;
    Some(cause.because(format!("{count} of {} pods: {detail}", pods.len())))
}

fn pod_trouble(pod: &Value) -> Option<(Cause, String)> {
    let containers = ["initContainerStatuses", "containerStatuses"];
    let all = containers.iter().flat_map(|name| pod["status"][name].as_array());
    for container in all.flatten() {
        let waiting = &container["state"]["waiting"];
        let detail = || {
            let text = waiting["message"].as_str().unwrap_or_default();
            let image = container["image"].as_str().unwrap_or_default();
            format!("{} {image}: {text}", waiting["reason"].as_str().unwrap_or_default())
        };
        match waiting["reason"].as_str() {
            Some(
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull",
            ) => {
                return Some((Cause::BadImage, detail()));
            }
            Some("CrashLoopBackOff") => {
                let code = &container["lastState"]["terminated"]["exitCode"];
                let times = container["restartCount"].as_i64().unwrap_or(0);
                return Some((
                    Cause::CrashLoop,
                    format!("restarted {times} times, the last time with exit code {code}"),
                ));
            }
            Some("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                return Some((Cause::Refused, detail()));
            }
            _ => {}
        }
    }
    let scheduled = condition(pod, "PodScheduled").filter(|c| c["status"] == "False")?;
    let message = scheduled["message"].as_str().unwrap_or_default();
    let cause =
        if message.contains("untolerated taint") { Cause::Taint } else { Cause::Unschedulable };
    Some((cause, message.to_owned()))
}

/// A daemon with no node to run on: no node has its label, or those that do are tainted.
fn nowhere(facts: &Facts) -> Option<Diagnosis> {
    let ready = condition(&facts.object, "Ready")?;
    let message = ready["message"].as_str().unwrap_or_default();
    (ready["reason"] == "NoMatchingNodes").then(|| {
        let taints: Vec<String> = facts.nodes.iter().filter_map(taint).collect();
        if facts.nodes.is_empty() {
            Cause::NoMatchingNode.because(message)
        } else if taints.is_empty() {
            Cause::Unschedulable
                .because("there are nodes with its label, but Kubernetes puts no pod on them")
        } else {
            Cause::Taint.because(taints.join(", "))
        }
    })
}

/// `node-1 has the taint key=value:NoSchedule`, or `key:NoSchedule` if it has no value, as kubectl
/// writes it.
fn taint(node: &Value) -> Option<String> {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taint = taints.find(|taint| taint["effect"] != "PreferNoSchedule")?;
    let word = |field: &str| taint[field].as_str().unwrap_or_default();
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let equals = if word("value").is_empty() { "" } else { "=" };
    let (key, value, effect) = (word("key"), word("value"), word("effect"));
    Some(format!("{name} has the taint {key}{equals}{value}:{effect}"))
}

/// What the operator's condition says, if nothing closer to the origin is known.
fn summary(object: &Value) -> Diagnosis {
    let Some(ready) = condition(object, "Ready") else {
        return Cause::Unseen.because("no operator has looked at it yet");
    };
    let message = ready["message"].as_str().unwrap_or_default();
    let wanted = object["spec"]["size"].as_i64().or(object["spec"]["replicas"].as_i64());
    let cause = match (ready["status"].as_str(), ready["reason"].as_str()) {
        (Some("True"), _) if wanted == Some(0) => Cause::ScaledToZero,
        (Some("True"), _) => Cause::Ready,
        (_, Some("ProgressDeadlineExceeded")) => Cause::Deadline,
        (_, Some("ReplicaFailure")) => Cause::Refused,
        _ => Cause::RollingOut,
    };
    cause.because(message)
}

/// The state of a pod, much as `kubectl get pods` shows it.
pub(super) fn pod_state(pod: &Value) -> String {
    if condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True") {
        return "Ready".to_owned();
    }
    match pod_trouble(pod) {
        Some((cause, detail)) => format!("{}: {detail}", cause.word()),
        None => pod["status"]["phase"].as_str().unwrap_or("Unknown").to_owned(),
    }
}

/// The conditions of any object, unchanged.
pub(super) fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| condition["type"] == kind)
}

fn count(child: &Value, field: &str) -> i64 {
    child["status"][field].as_i64().unwrap_or(0)
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
