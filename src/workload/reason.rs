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
        AllReplicasReady: "The desired number of replicas is ready and up to date."
            => "Nothing.",
        MostNodesReady: "The daemon should run on 100 nodes or more, and is up to date and ready on at least 99% of them. The message names the others."
            => "Run `kubectl describe node NODE`.",
        AllNodesReady: "Every node that should run the daemon has it up to date and ready."
            => "Nothing.",
        ScaledToZero: "No replicas are desired, and none exist."
            => "To run replicas, raise `spec.size` or `spec.replicas`.",
        NoMatchingNodes: "No node has the label, so no node runs the daemon."
            => "Label a node: `kubectl label node NODE KEY=VALUE`.",
        RollingOut: "A rollout is in progress. The message reports the progress."
            => "Wait. `kubectl get pods` shows the pods.",
        RolloutComplete: "No rollout is in progress."
            => "Nothing.",
        AsExpected: "There is no problem."
            => "Nothing.",
        Reconciling: "The operator is applying the spec. The message reports the progress."
            => "Wait, unless the message names a failure.",
        Resizing: "The Deployment could not be resized. The message names the cause."
            => "Follow the message.",
        ReplicaFailure: "Kubernetes cannot create the pods. The message names the cause."
            => "Follow the message. Common causes are a quota, Pod Security, a missing ServiceAccount and a PriorityClass that does not exist.",
        ProgressDeadlineExceeded: "A rollout made no progress within its deadline: the Deployment's, or the same time for a DaemonSet. For pods that do not exist and a controller that does not act, the time is 30 seconds."
            => "Inspect the pods: `kubectl describe pod -l cache.example.com/memcached=NAME`, or for an App `-l app.example.com/v1=NAME`. If there are none, describe the Deployment or DaemonSet, and check that kube-controller-manager runs.",
        ReplicasUnavailable: "Pods that were ready are not ready now, and no pod shows the cause. After 30 seconds, this is a problem."
            => "Wait. If the reason persists, run `kubectl get pods` and `kubectl describe pod`.",
        CrashLoopBackOff: "A container crashes repeatedly. The message names its pod."
            => "Run `kubectl logs POD --previous` to see the last output. After OOMKilled, raise the memory limit.",
        ImagePullFailed: "An image cannot be pulled. The message names the image and a pod."
            => "Correct the image's name, or give the nodes access to the registry. `kubectl describe pod POD` shows the error.",
        ContainerFailed: "A container cannot start. The message names the cause and the pod."
            => "Follow the message. Common causes are an image that runs as root, and a ConfigMap or Secret in `envs` that does not exist.",
        PodsUnschedulable: "The scheduler finds no node for a pod. The message is the scheduler's."
            => "Follow the message: add capacity or lower the requests of the pods, remove or tolerate a taint, correct the node selector, or create the claim.",
        ContainersNotReady: "A pod has not become ready within the deadline of its rollout, or is no longer ready: a container is not ready, its image is being pulled, or its volumes or network are not set up. The message names it."
            => "`kubectl describe pod POD` shows the readiness probe and missing volumes. `kubectl logs POD -c CONTAINER` shows the output of the container.",
        NodeNotReady: "A node that runs a pod, or that should run the daemon, is not ready or does not report. The message names the node."
            => "Run `kubectl describe node NODE`. Kubernetes replaces the pods of a Deployment after a few minutes.",
        PodsTerminating: "A pod is being deleted and still exists after its grace period. The message names the pod and its node."
            => "`kubectl describe pod POD` shows volumes that cannot be unmounted, `kubectl get pod POD -o yaml` shows finalizers. Check the node.",
        PodsEvicted: "A pod was evicted, and its replacement is not ready yet."
            => "Wait. `kubectl describe pod POD` shows which resource the node lacked.",
        NodesTainted: "Every matching node has a taint that the daemon does not tolerate."
            => "Remove the taint (`kubectl taint node NODE KEY-`), tolerate it in `spec.podTemplate.spec.tolerations`, or choose other nodes.",
        RolloutPaused: "Rollouts of the Deployment are paused, and a change is waiting."
            => "Run `kubectl rollout resume deployment/NAME`.",
        ErrResourceExists: "An object that the operator does not manage has the name of a managed resource. The operator does not change it."
            => "Rename this object. If the other object is not needed, delete it instead. The operator then continues automatically.",
        Contested: "Another client repeatedly reverts the operator's changes to a managed resource."
            => "Find the client with `kubectl get -o yaml --show-managed-fields`, and stop one of the two. If no other manager is listed, an admission policy or webhook reverts the changes.",
        AwaitingDeletion: "A previous managed resource with this name is still being deleted."
            => "Wait. `kubectl get -o yaml` shows the finalizers that delay the deletion.",
        FieldImmutable: "A managed resource differs in an immutable field."
            => "Delete the managed resource. The operator creates it again.",
        ImageMissing: "The image of memcached or of its exporter is not configured."
            => "Set `spec.image` or `spec.exporter.image`, or MEMCACHED_IMAGE or MEMCACHED_EXPORTER_IMAGE in the operator's Deployment, as the message says.",
        TemplateNotAllowed: "`podTemplate` or `serviceTemplate` is set, but the operator does not allow templates. It does not change the managed resources."
            => "Remove the template, or install the admission policies of artifacts/policy and start the operator with --allow-templates (ALLOW_TEMPLATES).",
        QuotaExceeded: "A ResourceQuota rejects the write."
            => "Raise the quota, or free some of it. The operator retries automatically.",
        Forbidden: "RBAC or an admission policy rejects the write."
            => "If `workload-operator check` reports R001, update the installation. Otherwise check the policy that the message names. The operator retries automatically.",
        Invalid: "The API server rejects a managed resource as invalid. The message names the field."
            => "Correct the spec.",
        ApiError: "A write to the API server failed. The message is the API server's."
            => "The operator retries automatically. If the reason persists, check the API server and its webhooks, and kube-controller-manager if the status of a quota is unknown.",
        Paused: "The annotation workload-operator.example.com/paused is 'true', so the operator writes only the status."
            => "Remove the annotation to continue.",
        Finalizing: "The operator is running its cleanup before the deletion."
            => "Nothing.",
        Deleting: "The object is being deleted."
            => "Nothing.",
        DeploymentCreated: "The Deployment was created."
            => "Nothing.",
        DeploymentUpdated: "The Deployment was changed because the spec, a setting of the operator or its version changed."
            => "Nothing.",
        DeploymentRestored: "Another client had changed the Deployment. The operator reverted the change."
            => "Change the custom resource instead.",
        DeploymentAdopted: "The Deployment had lost its owner reference, in a restore or by `--cascade=orphan`. The operator set it again."
            => "Nothing.",
        DaemonSetCreated: "The DaemonSet was created."
            => "Nothing.",
        DaemonSetUpdated: "The DaemonSet was changed because the spec, a setting of the operator or its version changed."
            => "Nothing.",
        DaemonSetRestored: "Another client had changed the DaemonSet. The operator reverted the change."
            => "Change the custom resource instead.",
        DaemonSetAdopted: "The DaemonSet had lost its owner reference, in a restore or by `--cascade=orphan`. The operator set it again."
            => "Nothing.",
        ServiceCreated: "The Service was created."
            => "Nothing.",
        ServiceUpdated: "The Service was changed because the spec, a setting of the operator or its version changed."
            => "Nothing.",
        ServiceRestored: "Another client had changed the Service. The operator reverted the change."
            => "Change the custom resource instead.",
        ServiceAdopted: "The Service had lost its owner reference, in a restore or by `--cascade=orphan`. The operator set it again."
            => "Nothing.",
        ServiceDeleted: "The Service was deleted because the spec has no ports."
            => "Nothing.",
        PodDisruptionBudgetCreated: "The PodDisruptionBudget was created."
            => "Nothing.",
        PodDisruptionBudgetUpdated: "The PodDisruptionBudget was changed because the spec, a setting of the operator or its version changed."
            => "Nothing.",
        PodDisruptionBudgetRestored: "Another client had changed the PodDisruptionBudget. The operator reverted the change."
            => "Change the custom resource instead.",
        PodDisruptionBudgetAdopted: "The PodDisruptionBudget had lost its owner reference, in a restore or by `--cascade=orphan`. The operator set it again."
            => "Nothing.",
        PodDisruptionBudgetDeleted: "The PodDisruptionBudget was deleted because the spec has no `podDisruptionBudget`."
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
                | Reason::PodsTerminating
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
                | Reason::PodsTerminating
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
        Create: "Create a managed resource." => "See the reason.",
        Update: "Change a managed resource." => "See the reason.",
        Delete: "Delete a managed resource." => "See the reason.",
        Reconcile: "Reconcile the object." => "See the reason.",
        Finalize: "Delete the object." => "See the reason.",
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
