//! Every reason and action that the operator writes into conditions and Events, and what a person
//! can do about it. The table is the source of the documentation.

/// Defines an enum of CamelCase words, each with its meaning and what to do next.
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

            /// Its name in the API.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$word => stringify!($word),)* }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $($name::$word => $meaning,)* }
            }

            /// What a person can do, in a sentence.
            pub fn next(self) -> &'static str {
                match self { $($name::$word => $next,)* }
            }
        }
    };
}

words! {
    /// The reason in a condition or an Event: one word, whose meaning is part of the interface.
    Reason {
        AllReplicasReady: "As many replicas as wanted serve, all of this generation."
            => "Nothing.",
        AllNodesReady: "The daemon is up to date and ready on every node where it belongs."
            => "Nothing.",
        ScaledToZero: "No replica is wanted, and none is there."
            => "Raise `spec.size` or `spec.replicas` to have some.",
        NoMatchingNodes: "No node bears the label, so the daemon belongs nowhere."
            => "Label a node: kubectl label node NODE KEY=VALUE.",
        RollingOut: "A rollout runs; the message says how far it is."
            => "Wait; kubectl get pods shows the pods.",
        RolloutComplete: "No rollout runs."
            => "Nothing.",
        AsExpected: "Nothing is wrong."
            => "Nothing.",
        Reconciling: "The operator brings about what the spec says; the message says how far it is."
            => "Wait, unless the message says what failed.",
        Resizing: "The Deployment could not be changed to another size; the message says why."
            => "Do what the message says.",
        ReplicaFailure: "Kubernetes cannot make the pods; the message says why."
            => "Look at the message: often a quota or a missing ServiceAccount.",
        ProgressDeadlineExceeded: "A rollout has made no progress for too long."
            => "Look at the pods: kubectl describe pod -l app.kubernetes.io/instance=NAME.",
        ErrResourceExists: "Somebody else's object has the name of a child; it is not touched."
            => "Delete or rename that object, or this one. It heals by itself then.",
        Contested: "Somebody keeps undoing what the operator does to a child."
            => "Look who it is, kubectl get -o yaml --show-managed-fields, and stop one of the two; who is \
                not named there is an admission policy or webhook.",
        AwaitingDeletion: "A former child of this name is still being deleted."
            => "Wait; kubectl get -o yaml shows the finalizers that hold it.",
        FieldImmutable: "A child differs in a field that Kubernetes does not allow to change."
            => "Delete that child; the operator makes it anew.",
        ImageMissing: "The operator has not been told which memcached image to run."
            => "Set MEMCACHED_IMAGE in the operator's Deployment.",
        QuotaExceeded: "A ResourceQuota does not allow the write."
            => "Raise the quota or free some of it; it is tried again by itself.",
        Forbidden: "The API server does not allow the write: RBAC or an admission policy."
            => "Apply artifacts/rbac/ or look at the policy the message names; it is tried again by itself.",
        Invalid: "The API server calls a child invalid; the message says which field."
            => "Correct the spec.",
        ApiError: "The API server could not carry out a write; the message is its own."
            => "It is tried again by itself; look at the API server and its webhooks if it stays.",
        Paused: "The annotation workload-operator.example.com/paused is 'true': nothing is written."
            => "Remove the annotation to go on.",
        Finalizing: "The object is being deleted."
            => "Nothing.",
        Deleting: "The object is being deleted."
            => "Nothing.",
        DeploymentCreated: "The Deployment was created." => "Nothing.",
        DeploymentUpdated: "The Deployment was changed, as the spec was." => "Nothing.",
        DeploymentRestored: "Somebody had changed the Deployment; it is as before."
            => "Change the custom resource instead.",
        DaemonSetCreated: "The DaemonSet was created." => "Nothing.",
        DaemonSetUpdated: "The DaemonSet was changed, as the spec was." => "Nothing.",
        DaemonSetRestored: "Somebody had changed the DaemonSet; it is as before."
            => "Change the custom resource instead.",
        ServiceCreated: "The Service was created." => "Nothing.",
        ServiceUpdated: "The Service was changed, as the spec was." => "Nothing.",
        ServiceRestored: "Somebody had changed the Service; it is as before."
            => "Change the custom resource instead.",
        ServiceDeleted: "The Service was deleted, as the last port was." => "Nothing.",
    }
}

words! {
    /// What the operator did, or failed to do: the `action` of an Event.
    Action {
        Create: "A child was to be created." => "See the reason.",
        Update: "A child was to be changed." => "See the reason.",
        Delete: "A child was to be deleted." => "See the reason.",
        Reconcile: "The state was looked at." => "See the reason.",
        Finalize: "The object is being deleted." => "See the reason.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
