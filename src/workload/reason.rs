//! Every reason and action that the operator writes into conditions and Events, with its meaning and remedy.
//! The table is the source of the documentation.

use crate::client;
use crate::controller::Class;

/// Defines an enum of CamelCase words, each with its meaning and the next step for a user.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident: $meaning:literal => $next:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $word,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$word),*];

            /// Returns the name in the API.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$word => stringify!($word),)* }
            }

            /// Returns the meaning, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $($name::$word => $meaning,)* }
            }

            /// Returns the remedy for a user, in a sentence.
            pub fn next(self) -> &'static str {
                match self { $($name::$word => $next,)* }
            }
        }
    };
}

words! {
    /// The reason in a condition or an Event: one word, whose meaning is part of the interface.
    Reason {
        AllReplicasReady: "As many replicas as desired serve, all of them of this generation."
            => "Nothing.",
        MostNodesReady: "The daemon is up to date and ready on 99 of 100 nodes where it belongs, or more; the message names nodes that are lost or where it is not ready."
            => "kubectl describe node NODE.",
        AllNodesReady: "The daemon is up to date and ready on every node where it belongs."
            => "Nothing.",
        ScaledToZero: "No replicas are desired, and there are none."
            => "Raise `spec.size` or `spec.replicas` to have some.",
        NoMatchingNodes: "No node has the label, so the daemon runs nowhere."
            => "Label a node: kubectl label node NODE KEY=VALUE.",
        RollingOut: "A rollout is under way; the message says how far it is."
            => "Wait; kubectl get pods shows the pods.",
        RolloutComplete: "No rollout is under way."
            => "Nothing.",
        AsExpected: "Nothing is wrong."
            => "Nothing.",
        Reconciling: "The operator is bringing about what the spec says; the message says how far it is."
            => "Wait, unless the message says what failed.",
        Resizing: "The Deployment could not be resized; the message says why."
            => "Do what the message says.",
        ReplicaFailure: "Kubernetes cannot create the pods; the message says why."
            => "Read the message: often it is a quota or a missing ServiceAccount.",
        ProgressDeadlineExceeded: "A rollout has made no progress for too long: the Deployment's deadline, or 30 seconds for a DaemonSet."
            => "Look at the pods: kubectl describe pod -l cache.example.com/memcached=NAME, for an App -l app.example.com/v1=NAME. If there are none, see kubectl describe of the Deployment or DaemonSet, and whether kube-controller-manager runs.",
        ReplicasUnavailable: "Pods that served before do not serve now; no pod shows why."
            => "Wait a little; if it stays: kubectl get pods, kubectl describe pod.",
        CrashLoopBackOff: "A container ends again and again; the message names its pod."
            => "kubectl logs POD --previous shows its last words.",
        ImagePullFailed: "An image cannot be pulled; the message names it and a pod."
            => "Correct the image's name, or give access to its registry: kubectl describe pod POD.",
        ContainerFailed: "A container cannot be started; the message says why and names its pod."
            => "Do what the message says: often the image runs as root, or a ConfigMap or Secret of `envs` is missing.",
        PodsUnschedulable: "No node takes a pod; the message has the scheduler's words."
            => "Free or add what is lacking, or lower what the pods request.",
        ContainersNotReady: "A container of a pod, perhaps a sidecar, runs but is not ready, or a pod waits for its volumes or its network; the message names it."
            => "kubectl describe pod POD shows its readiness probe, and which volume is missing; kubectl logs POD -c CONTAINER.",
        NodeNotReady: "A node with a pod, or one where the daemon belongs, does not report or is not ready; the message names it."
            => "kubectl describe node NODE; Kubernetes replaces a Deployment's pods after a few minutes.",
        PodsEvicted: "A pod was evicted, and the one that replaces it does not serve yet."
            => "Wait; kubectl describe pod POD says what its node was short of.",
        NodesTainted: "A taint keeps the daemon from every node where it belongs."
            => "kubectl taint node NODE KEY- removes it; or choose other nodes.",
        RolloutPaused: "Somebody has paused the Deployment's rollouts, and a change waits."
            => "kubectl rollout resume deployment/NAME.",
        ErrResourceExists: "An object that is not the operator's has the name of a child; it is left alone."
            => "Delete that object, or give this one another name; then it heals by itself.",
        Contested: "Somebody keeps undoing what the operator does to a child."
            => "Find out who it is (kubectl get -o yaml --show-managed-fields) and stop one of the two; if \
                nobody is named there, it is an admission policy or webhook.",
        AwaitingDeletion: "A former child of this name is still being deleted."
            => "Wait; kubectl get -o yaml shows which finalizers keep it.",
        FieldImmutable: "A child differs in a field that Kubernetes does not allow to change."
            => "Delete that child; the operator creates it again.",
        ImageMissing: "The operator has not been told which image to run, of memcached or of its exporter."
            => "Set MEMCACHED_IMAGE or MEMCACHED_EXPORTER_IMAGE in the operator's Deployment, as the message says.",
        HostPathNotAllowed: "The administrator does not allow a path of `hostPaths`; the DaemonSet stays as it is."
            => "Choose another path, or allow it: --allowed-host-paths of the operator (ALLOWED_HOST_PATHS).",
        QuotaExceeded: "A ResourceQuota does not allow the write."
            => "Raise the quota or free some of it; the operator tries again by itself.",
        Forbidden: "The API server does not allow the write: RBAC or an admission policy."
            => "Apply artifacts/rbac/ or look at the policy that the message names; the operator tries again by itself.",
        Invalid: "The API server refuses a child as invalid; the message says which field."
            => "Correct the spec.",
        ApiError: "The API server could not carry out a write; the message is the server's."
            => "The operator tries again by itself; if it stays, look at the API server and its webhooks.",
        Paused: "The annotation workload-operator.example.com/paused is 'true', so nothing but the status is written."
            => "Remove the annotation to go on.",
        Finalizing: "The object is being deleted."
            => "Nothing.",
        Deleting: "The object is being deleted."
            => "Nothing.",
        DeploymentCreated: "The Deployment was created." => "Nothing.",
        DeploymentUpdated: "The Deployment was changed because the spec was." => "Nothing.",
        DeploymentRestored: "Somebody had changed the Deployment; it is as before again."
            => "Change the custom resource instead.",
        DeploymentAdopted: "The Deployment had lost its owner, in a restore or by `--cascade=orphan`; it has one again."
            => "Nothing.",
        DaemonSetCreated: "The DaemonSet was created." => "Nothing.",
        DaemonSetUpdated: "The DaemonSet was changed because the spec was." => "Nothing.",
        DaemonSetRestored: "Somebody had changed the DaemonSet; it is as before again."
            => "Change the custom resource instead.",
        DaemonSetAdopted: "The DaemonSet had lost its owner, in a restore or by `--cascade=orphan`; it has one again."
            => "Nothing.",
        ServiceCreated: "The Service was created." => "Nothing.",
        ServiceUpdated: "The Service was changed because the spec was." => "Nothing.",
        ServiceRestored: "Somebody had changed the Service; it is as before again."
            => "Change the custom resource instead.",
        ServiceAdopted: "The Service had lost its owner, in a restore or by `--cascade=orphan`; it has one again."
            => "Nothing.",
        ServiceDeleted: "The Service was deleted because the spec has no ports any more." => "Nothing.",
        PodDisruptionBudgetCreated: "The PodDisruptionBudget was created." => "Nothing.",
        PodDisruptionBudgetUpdated: "The PodDisruptionBudget was changed because the spec was." => "Nothing.",
        PodDisruptionBudgetRestored: "Somebody had changed the PodDisruptionBudget; it is as before again."
            => "Change the custom resource instead.",
        PodDisruptionBudgetAdopted: "The PodDisruptionBudget had lost its owner, in a restore or by `--cascade=orphan`; it has one again."
            => "Nothing.",
        PodDisruptionBudgetDeleted: "The PodDisruptionBudget was deleted because the spec has none any more."
            => "Nothing.",
    }
}

impl Reason {
    /// Returns whether pods or nodes show this cause.
    pub(crate) fn is_of_pods(self) -> bool {
        matches!(
            self,
            Reason::CrashLoopBackOff
                | Reason::ImagePullFailed
                | Reason::ContainerFailed
                | Reason::ContainersNotReady
                | Reason::PodsUnschedulable
                | Reason::NodeNotReady
                | Reason::NodesTainted
                | Reason::PodsEvicted
                | Reason::ReplicaFailure
                | Reason::ReplicasUnavailable
                | Reason::ProgressDeadlineExceeded
        )
    }

    /// Returns whether pods show this cause.
    pub(crate) fn is_shown_by_pods(self) -> bool {
        matches!(
            self,
            Reason::CrashLoopBackOff
                | Reason::ImagePullFailed
                | Reason::ContainerFailed
                | Reason::ContainersNotReady
                | Reason::PodsUnschedulable
                | Reason::NodeNotReady
                | Reason::PodsEvicted
        )
    }

    /// Returns whether a lasting problem with this cause does not resolve itself.
    pub(crate) fn stalls(self) -> bool {
        matches!(
            self,
            Reason::ImagePullFailed
                | Reason::ContainerFailed
                | Reason::NodesTainted
                | Reason::ReplicaFailure
                | Reason::QuotaExceeded
        )
    }

    /// Returns the reason for which the API server refuses a request until a user acts: quota, permissions, a
    /// policy or the spec. `None` for any other error.
    pub fn of_refusal(error: &client::Error) -> Option<Reason> {
        match Class::of(error) {
            Class::Forbidden if error.is_quota_exceeded() => Some(Reason::QuotaExceeded),
            Class::Forbidden if error.is_forbidden() || error.is_denied() => {
                Some(Reason::Forbidden)
            }
            Class::Forbidden => Some(Reason::Invalid),
            _ => None,
        }
    }

    /// Returns the reason with this name.
    pub fn named(name: &str) -> Option<Reason> {
        Reason::ALL.iter().copied().find(|reason| reason.as_str() == name)
    }
}

words! {
    /// Actions of the operator, done or failed: the `action` of an Event.
    Action {
        Create: "A child was to be created." => "See the reason.",
        Update: "A child was to be changed." => "See the reason.",
        Delete: "A child was to be deleted." => "See the reason.",
        Reconcile: "The object was reconciled." => "See the reason.",
        Finalize: "The object is being deleted." => "See the reason.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_by_a_policy_is_forbidden_whatever_its_code() {
        let denied = "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with \
                      binding 'b' denied request: not today";
        let by_webhook = "admission webhook \"w\" denied the request: not today";
        for (code, message) in [(422, denied), (400, by_webhook), (403, by_webhook)] {
            let reason = Reason::of_refusal(&client::Error::api(code, "Invalid", message));
            assert_eq!(reason, Some(Reason::Forbidden), "{code} {message}");
        }
        let invalid = client::Error::api(422, "Invalid", "spec.replicas: Invalid value");
        assert_eq!(Reason::of_refusal(&invalid), Some(Reason::Invalid));
        assert_eq!(Reason::of_refusal(&client::Error::api(500, "InternalError", "")), None);
    }

    #[test]
    fn every_reason_is_a_word_with_a_meaning_and_a_next_step() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            assert!(word.len() <= 128 && word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
            for sentence in [reason.meaning(), reason.next()] {
                assert!(sentence.ends_with('.'), "{word}: {sentence}");
            }
        }
    }
}
