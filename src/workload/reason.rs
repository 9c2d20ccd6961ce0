//! Every reason and action that the operator writes into conditions and Events. docs/REASONS.md has the meaning and
//! the remedy of each, and is part of the program.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::client;
use crate::controller::ErrorClass;

/// The meaning and the remedy of each reason.
static ROWS: LazyLock<HashMap<&str, [&str; 2]>> = LazyLock::new(|| {
    let page = include_str!("../../docs/REASONS.md");
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let _place = cells.next()?;
        Some((name, [cells.next()?, cells.next()?]))
    };
    page.lines().filter_map(row).collect()
});

/// Defines an enum of CamelCase words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident,)* }) => {
        $(#[$doc])*
        #[allow(missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($word,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$word),*];

            /// Returns the name in the API.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$word => stringify!($word),)* }
            }
        }
    };
}

words! {
    /// The reason in a condition or an Event: one word, whose meaning is part of the interface.
    Reason {
        AllReplicasReady,
        MostNodesReady,
        AllNodesReady,
        ScaledToZero,
        NoMatchingNodes,
        RollingOut,
        RolloutComplete,
        AsExpected,
        Reconciling,
        Resizing,
        ReplicaFailure,
        ProgressDeadlineExceeded,
        ReplicasUnavailable,
        CrashLoopBackOff,
        ImagePullFailed,
        ContainerFailed,
        PodsUnschedulable,
        ContainersNotReady,
        NodeNotReady,
        PodsTerminating,
        PodsEvicted,
        NodesTainted,
        RolloutPaused,
        ErrResourceExists,
        Contested,
        AwaitingDeletion,
        FieldImmutable,
        ImageMissing,
        TemplateNotAllowed,
        QuotaExceeded,
        Forbidden,
        Invalid,
        ApiError,
        Paused,
        Finalizing,
        Deleting,
        DeploymentCreated,
        DeploymentUpdated,
        DeploymentRestored,
        DeploymentAdopted,
        DaemonSetCreated,
        DaemonSetUpdated,
        DaemonSetRestored,
        DaemonSetAdopted,
        ServiceCreated,
        ServiceUpdated,
        ServiceRestored,
        ServiceAdopted,
        ServiceDeleted,
        PodDisruptionBudgetCreated,
        PodDisruptionBudgetUpdated,
        PodDisruptionBudgetRestored,
        PodDisruptionBudgetAdopted,
        PodDisruptionBudgetDeleted,
    }
}

impl Reason {
    /// Returns the meaning, in a sentence.
    pub fn meaning(self) -> &'static str {
        ROWS.get(self.as_str()).map_or("", |[meaning, _]| meaning)
    }

    /// Returns the remedy for a user, in a sentence.
    pub fn next(self) -> &'static str {
        ROWS.get(self.as_str()).map_or("", |[_, next]| next)
    }

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
        match ErrorClass::of(error) {
            ErrorClass::Forbidden if error.is_quota_exceeded() => Some(Reason::QuotaExceeded),
            ErrorClass::Forbidden if error.is_forbidden() || error.is_denied() => {
                Some(Reason::Forbidden)
            }
            ErrorClass::Forbidden => Some(Reason::Invalid),
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
    Action { Create, Update, Delete, Reconcile, Finalize, }
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
    fn the_page_has_exactly_the_reasons_and_actions_of_the_program() {
        for reason in Reason::ALL {
            for sentence in [reason.meaning(), reason.next()] {
                assert!(sentence.ends_with('.'), "{reason:?}: {sentence}");
            }
        }
        // Before any controller has seen the object, and those of the library.
        let others =
            ["Pending", "WritesRepeatedly", "ErrNotServed", "ErrUndecodable", "ErrRequest"];
        let known = |name: &str| Reason::named(name).is_some() || others.contains(&name);
        assert_eq!(ROWS.keys().find(|name| !known(name)), None);
        let page = include_str!("../../docs/REASONS.md");
        for action in Action::ALL {
            assert!(page.contains(&format!("\n| `{}` | ", action.as_str())), "{action:?}");
        }
    }
}
