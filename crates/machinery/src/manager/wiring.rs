//! Wiring faults, found before the program starts.

use std::any::type_name;

use crate::informer::BuildError;
use crate::object::forever;

/// A wiring fault. Its text names the line to add or to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// There is no controller.
    #[error("there is no controller: add `manager.controller::<KIND>().reconcile(FUNCTION)`")]
    NoController,
    /// Two controllers have the same name, so their metrics, logs and Events are indistinguishable.
    #[error("two controllers are named {0}: give one of them another name with `.named(\"…\")`")]
    SameName(&'static str),
    /// A controller's name is invalid in the names of metrics and Events.
    #[error(
        "a controller cannot be named {0:?}: a name has 1 to 63 lower-case letters, digits and \
         dashes, with no dash at its ends; choose one with `.named(\"…\")`"
    )]
    Name(&'static str),
    /// The program's group is not a DNS name: the API server would refuse its Events.
    #[error(
        "the program's group {0:?} is no DNS name, so that every Event would be refused: use one such as \
         `Identity::new(\"website\", \"example.com\")`"
    )]
    Group(&'static str),
    /// A controller reads a view that it does not declare, so it has no informer.
    #[error(
        "the controller {controller} reads {view} but does not declare it: add \
         `.reads::<{view}>()`, `.owns::<{view}>()` or `.watches::<{view}>(…)`"
    )]
    NotDeclared {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `Secret`.
        view: &'static str,
    },
    /// A controller creates objects of a view that it does not own: their changes would not enqueue their owner.
    #[error(
        "the controller {controller} calls `ensure` for {view} without declaring it, so changes to these objects would \
         not trigger a reconcile: add `.owns::<{view}>()`"
    )]
    NotOwned {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `Deployment`.
        view: &'static str,
    },
    /// A namespaced object cannot own a cluster-scoped one.
    #[error(
        "the controller {controller} owns {view}, but its own kind is namespaced and that of {view} \
         is not: the garbage collector would delete such children; use `.watches::<{view}>(…)`"
    )]
    OwnsClusterScoped {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `Node`.
        view: &'static str,
    },
    /// A controller owns objects by a label that their view drops.
    #[error(
        "the controller {controller} owns {view} by the label {label:?}, which its view does not keep: use \
         `Meta<Everything>`, a `Keep` with this label, or `Typed`"
    )]
    LabelNotKept {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `ConfigMap`.
        view: &'static str,
        /// The label.
        label: &'static str,
    },
    /// A controller owns a view in two ways.
    #[error(
        "the controller {controller} owns {view} twice: keep one of `.owns` and `.owns_labelled`, or declare a second \
         view of the kind"
    )]
    OwnsTwice {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `ConfigMap`.
        view: &'static str,
    },
    /// A controller would write on processes that do not lead, where the client refuses writes.
    #[error(
        "the controller {controller} is `.also_on_standbys()`, but owns objects or has a finalizer: writes are refused \
         there; let another controller write"
    )]
    WritesOnStandbys {
        /// The controller's name.
        controller: &'static str,
    },
    /// A controller owns objects by a label, and nothing would delete them with their owner.
    #[error(
        "the controller {controller} owns objects by a label, which the garbage collector does not delete: add \
         `.finalizer(\"example.com/{controller}\", async |_, cx| cx.prune::<VIEW>(|_| false).await)`"
    )]
    NothingDeletes {
        /// The controller's name.
        controller: &'static str,
    },
    /// The API server refuses an unqualified finalizer name of a built-in kind.
    #[error(
        "the controller {controller} has a finalizer {finalizer:?}: its name must be qualified, \
         `.finalizer(\"example.com/{controller}\", …)`"
    )]
    Finalizer {
        /// The controller's name.
        controller: &'static str,
        /// The finalizer's name.
        finalizer: &'static str,
    },
    /// A controller has two finalizers, but only one would run.
    #[error(
        "the controller {controller} has the finalizers {first:?} and {second:?}: declare one, whose cleanup \
         does both"
    )]
    SecondFinalizer {
        /// The controller's name.
        controller: &'static str,
        /// The finalizer that was declared first.
        first: &'static str,
        /// The second one.
        second: &'static str,
    },
    /// A declaration has no effect with a custom reconciler, which must implement this itself.
    #[error(
        "the controller {controller} declares `.{declaration}(…)`, which only `.reconcile(…)` and `.run(…)` \
         use: remove it and do it in the reconciler"
    )]
    Unused {
        /// The controller's name.
        controller: &'static str,
        /// The declaration.
        declaration: &'static str,
    },
    /// A controller filters changes that enqueue nothing.
    #[error(
        "the controller {controller} has a `.filter::<{view}>(…)`, but no change of {view} enqueues anything: add \
         `.owns::<{view}>()`, `.watches::<{view}>(…)` or `.refers::<{view}>(…)`, or remove the filter"
    )]
    FilterOfNothing {
        /// The controller's name.
        controller: &'static str,
        /// The view's type, `Deployment`.
        view: &'static str,
    },
    /// One controller restricts an informer that others share.
    #[error(
        "the controllers {controllers} read one informer of {view}, and one of them has it select objects or \
         fields with `.informer::<{view}>(…)`: if all are to see these objects only, call `Manager::informer` \
         in its place; else declare a second view type of the kind for that one"
    )]
    Narrowed {
        /// The view's type, `Pod`.
        view: &'static str,
        /// The controllers' names.
        controllers: String,
    },
    /// The program adjusts the informer of a view that no controller declares.
    #[error(
        "`Manager::informer` adjusts the informer of {view}, which no controller declares: declare it, such as with \
         `.reads::<{view}>()`, or remove the call"
    )]
    InformerOfNothing {
        /// The view's type, `Pod`.
        view: &'static str,
    },
    /// An informer cannot work as declared.
    #[error(transparent)]
    Informer(#[from] BuildError),
    /// The namespace of the Lease is unknown.
    #[error(
        "the namespace of the Lease {0} is not known outside of a pod: add \
         `.leader_election(Lease::named({0:?}).namespace(\"…\"))`"
    )]
    LeaseNamespace(String),
}

/// Returns the name of a view's type as it appears in the program's code.
pub(super) fn view<V>() -> &'static str {
    let path = type_name::<V>();
    let last = |path: &'static str| path.rsplit("::").next().unwrap_or(path);
    match path.strip_suffix('>').and_then(|path| path.split_once('<')) {
        None => last(path),
        Some((outer, inner)) => forever(&format!("{}<{}>", last(outer), last(inner))),
    }
}

/// Returns the faults of the controllers' names.
pub(super) fn of_names(names: &[&'static str]) -> Vec<WiringError> {
    let mut faults = Vec::new();
    if names.is_empty() {
        faults.push(WiringError::NoController);
    }
    for (at, name) in names.iter().enumerate() {
        if !is_dns_label(name) {
            faults.push(WiringError::Name(name));
        }
        if names[..at].contains(name) {
            faults.push(WiringError::SameName(name));
        }
    }
    faults
}

/// Returns whether kinds of this group are custom resources.
pub(super) fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Returns whether `name` is a DNS name, a slash and a word, as the API server requires of a finalizer.
pub(super) fn is_qualified(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(prefix, rest)| is_dns_name(prefix) && is_word(rest))
}

/// Returns whether this is the name part of a label key, or a label value that is not empty.
pub(crate) fn is_word(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let fits = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    let ends = text.starts_with(is_end) && text.ends_with(is_end);
    text.len() <= 63 && ends && text.chars().all(fits)
}

/// Returns whether a name is a DNS-1123 subdomain.
pub(crate) fn is_dns_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Returns whether a part of a name is a DNS-1123 label.
fn is_dns_label(label: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.len() <= 63
        && label.chars().all(|c| is_end(c) || c == '-')
        && label.starts_with(is_end)
        && label.ends_with(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_names_are_valid_and_unique() {
        assert_eq!(of_names(&["foo", "bar-2"]), []);
        assert_eq!(of_names(&[]), [WiringError::NoController]);
        assert_eq!(of_names(&["foo", "foo"]), [WiringError::SameName("foo")]);
        assert_eq!(of_names(&["Foo"]), [WiringError::Name("Foo")]);
        assert_eq!(of_names(&["-foo"]), [WiringError::Name("-foo")]);
    }

    #[test]
    fn a_finalizer_has_a_domain_and_a_name() {
        assert!(is_qualified("example.com/website"));
        for wrong in [
            "website",
            "/website",
            "example.com/",
            "exa mple/website",
            "-a/b",
            "A.example/x",
            "a..b/x",
        ] {
            assert!(!is_qualified(wrong), "{wrong}");
        }
    }
}
