//! The identity of the program.

use std::borrow::Cow;
use std::sync::OnceLock;

/// The program's name. The user agent, the field manager, the source of Events and the prefix of its own metrics are
/// derived from it. It also contains the remedies for missing kinds and permissions.
///
/// ```
/// use controller_machinery::identity::Identity;
///
/// const IDENTITY: Identity = Identity::new("website", "example.com").version("1.2.3");
/// assert_eq!(IDENTITY.user_agent(), "website/1.2.3");
/// assert_eq!(IDENTITY.event_source("pages"), "example.com/pages");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    hints: Hints,
}

/// Remedies in the log for something missing in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// A kind is not served. Default: "apply its CustomResourceDefinition".
    pub kinds: &'static str,
    /// The account has no permission to list, watch or write. Default: "grant its account the permission".
    pub permissions: &'static str,
    /// The account has no permission to create TokenReviews and SubjectAccessReviews. Default: "grant its account the
    /// permission".
    pub reviews: &'static str,
}

// === impl Identity ===

impl Identity {
    /// Creates the identity of a program. `group` is a DNS name that qualifies `name`, usually the API group of its
    /// kinds; it can be empty.
    pub const fn new(name: &'static str, group: &'static str) -> Identity {
        Identity { name, group, version: "", hints: Hints::DEFAULT }
    }

    /// Sets the version, which the user agent shows.
    pub const fn version(self, version: &'static str) -> Identity {
        Identity { version, ..self }
    }

    /// Sets the hints.
    pub const fn with_hints(self, hints: Hints) -> Identity {
        Identity { hints, ..self }
    }

    /// Returns the name, which is also the field manager of writes.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the `User-Agent` of every request: `name/version`, in visible ASCII.
    pub fn user_agent(&self) -> String {
        let agent = match self.version {
            "" => self.name.to_owned(),
            version => format!("{}/{version}", self.name),
        };
        agent.replace(|c: char| !c.is_ascii_graphic(), "-")
    }

    /// Returns the `reportingController` of the Events of `controller`: `group/controller`.
    pub fn event_source(&self, controller: &str) -> String {
        match self.group {
            "" => controller.to_owned(),
            group => format!("{group}/{controller}"),
        }
    }

    /// Returns the prefix of the metrics without a counterpart in client-go or controller-runtime: the name, with
    /// underscores.
    pub fn metrics_prefix(&self) -> String {
        let prefix = self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        // The name of a metric must not begin with a digit.
        if prefix.starts_with(|c: char| c.is_ascii_digit()) { format!("_{prefix}") } else { prefix }
    }

    /// Returns the hints for something missing in the cluster.
    pub const fn hints(&self) -> Hints {
        self.hints
    }
}

/// Names the program after its executable, as in client-go.
impl Default for Identity {
    fn default() -> Identity {
        static NAME: OnceLock<String> = OnceLock::new();
        let name = NAME.get_or_init(|| {
            let path = std::env::current_exe().unwrap_or_default();
            let name = path.file_name().map_or(Cow::Borrowed("unknown"), |n| n.to_string_lossy());
            name.into_owned()
        });
        Identity::new(name, "")
    }
}

/// Creates an identity with only a name.
impl From<&'static str> for Identity {
    fn from(name: &'static str) -> Identity {
        Identity::new(name, "")
    }
}

// === impl Hints ===

impl Hints {
    const DEFAULT: Hints = Hints {
        kinds: "apply its CustomResourceDefinition",
        permissions: "grant its account the permission",
        reviews: "grant its account the permission",
    };
}

impl Default for Hints {
    fn default() -> Hints {
        Hints::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agent_event_source_and_metrics_prefix_are_legal() {
        let odd = Identity::new("my-opérator", "").version("1 beta");
        assert_eq!(odd.user_agent(), "my-op-rator/1-beta");
        assert_eq!(odd.event_source("pages"), "pages");
        assert_eq!(Identity::new("my-operator", "x").metrics_prefix(), "my_operator");
        assert_eq!(Identity::new("3scale", "x").metrics_prefix(), "_3scale");
    }

    #[test]
    fn the_default_identity_is_the_name_of_the_executable() {
        assert!(Identity::default().name().starts_with("controller_machinery-"));
    }
}
