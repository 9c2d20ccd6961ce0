//! The controller of Jobs (pkg/controller/job in k8s.io/kubernetes).

use serde_json::{Value, json};

use super::deployment::counts;
use super::{Object, PODS, Snapshot, Step, Sync, condition, renewed};

pub(super) fn sync(snapshot: &Snapshot, job: &Object, sync: &mut Sync) {
    if job.is_deleting() || !job.at("/spec/template").is_object() {
        return;
    }
    if let Some(ended) = ["Complete", "Failed"].into_iter().find(|kind| job.is(kind)) {
        return expire(snapshot, job, ended, sync);
    }
    let pods: Vec<_> = snapshot.owned_by(job, PODS).collect();
    let count = |phase: &str| {
        let count = pods.iter().filter(|pod| pod.text("/status/phase") == phase).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let (succeeded, failed) = (count("Succeeded"), count("Failed"));
    let active = count("Pending") + count("Running");
    let wanted = job.at("/spec/completions").as_i64().unwrap_or(1);
    let retries = job.at("/spec/backoffLimit").as_i64().unwrap_or(6);
    let is_suspended = *job.at("/spec/suspend") == true;
    let is_over = failed > retries || succeeded >= wanted;
    if is_suspended || is_over {
        let unfinished = |pod: &&&Object| !has_ended(pod) && !pod.is_deleting();
        pods.iter().filter(unfinished).for_each(|pod| sync.delete(pod));
    } else {
        let parallel = job.at("/spec/parallelism").as_i64().unwrap_or(1);
        for _ in active..parallel.min(wanted - succeeded) {
            create_pod(job, sync);
        }
    }
    let mut status = counts(&[
        ("active", if is_suspended || is_over { 0 } else { active }),
        ("succeeded", succeeded),
        ("failed", failed),
    ]);
    let before = job.at("/status");
    if !is_suspended {
        status["startTime"] =
            before.get("startTime").cloned().unwrap_or_else(|| json!(snapshot.now));
    }
    let mut conditions = Vec::new();
    let mut add = |kind: &str, holds: &str, reason: &str, message: &str| {
        let new = json!({"type": kind, "status": holds, "reason": reason, "message": message});
        conditions.push(renewed(before, new, &snapshot.now));
    };
    if is_suspended {
        add("Suspended", "True", "JobSuspended", "Job suspended");
    } else if condition(before, "Suspended").is_some() {
        add("Suspended", "False", "JobResumed", "Job resumed");
    }
    // FailureTarget and SuccessCriteriaMet are set together with the final condition. A real Job sets them earlier,
    // while pods can still run.
    if failed > retries {
        let (reason, why) = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        add("FailureTarget", "True", reason, why);
        add("Failed", "True", reason, why);
    } else if succeeded >= wanted {
        let (reason, why) = ("CompletionsReached", "Reached expected number of succeeded pods");
        add("SuccessCriteriaMet", "True", reason, why);
        add("Complete", "True", reason, why);
        status["completionTime"] = json!(snapshot.now);
    }
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    sync.status(job, status);
}

/// Deletes a finished Job after `ttlSecondsAfterFinished`.
fn expire(snapshot: &Snapshot, job: &Object, ended: &str, sync: &mut Sync) {
    let Some(seconds) = job.at("/spec/ttlSecondsAfterFinished").as_i64() else { return };
    let since = condition(job.at("/status"), ended).map(|it| &it["lastTransitionTime"]);
    if snapshot.is_past(since.and_then(Value::as_str).unwrap_or_default(), seconds) {
        sync.delete(job);
    } else {
        sync.waits = true;
    }
}

fn create_pod(job: &Object, sync: &mut Sync) {
    sync.create_pod(job, "Job", None, None);
    if let Some(Step::Create(_, pod)) = sync.steps.last_mut() {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!(job.id.name);
        pod["metadata"]["labels"]["job-name"] = json!(job.id.name);
    }
}

pub(super) fn has_ended(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether the pod belongs to a Job, so that it terminates by itself.
pub(super) fn is_of_a_job(pod: &Object) -> bool {
    let owners = pod.at("/metadata/ownerReferences").as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["kind"] == "Job" && owner["controller"] == true)
}
