//! The labels that identify the owned objects of a custom resource.

use std::sync::OnceLock;

use crate::object::{InternedStr, Labels};

/// Field manager, and the value of `app.kubernetes.io/managed-by` and `part-of`.
pub const MANAGER: &str = "workload-operator";

/// Kubernetes' recommended labels.
const RECOMMENDED: &str = "app.kubernetes.io/";
const NAME: &str = "app.kubernetes.io/name";
/// Names the custom resource.
const INSTANCE: &str = "app.kubernetes.io/instance";
const VERSION: &str = "app.kubernetes.io/version";
const PART_OF: &str = "app.kubernetes.io/part-of";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const CREATED_BY: &str = "app.kubernetes.io/created-by";
/// Users of Memcached identify its pods by this label and by [`MEMCACHED_CR`].
pub(crate) const APP: &str = "app";
/// Names the Memcached.
pub(crate) const MEMCACHED_CR: &str = "memcached_cr";

/// Selects the pods of a Memcached. No other client sets this label or the next two. The recommended labels are
/// not unique: a Helm release of the same name has them, too.
pub(crate) const MEMCACHED: &str = "cache.example.com/memcached";
/// Selects the pods of a GenericDaemon.
pub(crate) const GENERIC_DAEMON: &str = "mydomain.com/genericdaemon";
/// Selects the pods of an App.
pub(crate) const APP_V1: &str = "app.example.com/v1";

/// Labels by which Kubernetes distinguishes the pods of one template from those of another.
const OF_KUBERNETES: [&str; 3] =
    ["pod-template-hash", "controller-revision-hash", "pod-template-generation"];

/// Labels of custom resources that owned objects and pods inherit: keys, and prefixes of keys that end with
/// `*`. It is a static because the functions that decide which metadata a view keeps
/// ([`MetadataFilter`](crate::object::MetadataFilter)) have no further argument. It is set once, before anything is read.
static INHERITED: OnceLock<Box<[String]>> = OnceLock::new();

/// The longest label value (k8s.io/apimachinery/pkg/util/validation, LabelValueMaxLength).
const MAX_VALUE: usize = 63;

/// The labels that the operator sets.
const OWN: [&str; 11] = [
    MEMCACHED,
    GENERIC_DAEMON,
    APP_V1,
    NAME,
    INSTANCE,
    VERSION,
    PART_OF,
    MANAGED_BY,
    CREATED_BY,
    APP,
    MEMCACHED_CR,
];

/// The labels of the owned objects of one custom resource.
#[derive(Debug, Clone)]
pub(crate) struct Identity<'a> {
    /// The kind of workload, such as `memcached`.
    pub kind: &'static str,
    /// The name of the program. Collectors of logs and traces keep programs apart by it.
    pub program: &'a str,
    /// The label that selects the pods. Its value is the custom resource's name.
    pub label: &'static str,
    /// The custom resource's name.
    pub name: &'a str,
    /// The image, whose tag is the version.
    pub image: Option<&'a str>,
    /// Further labels for users.
    pub more: Vec<(&'static str, &'a str)>,
    /// Labels of the custom resource that its owned objects inherit.
    pub inherited: &'a Labels,
}

impl Identity<'_> {
    /// Returns the labels of a pod: the operator's own without [`INSTANCE`]. With it, the Service of a Helm
    /// release of the same name and workload would select the pod, too.
    pub(crate) fn pod_labels(&self) -> Labels {
        let labels = self.own();
        labels
            .iter()
            .filter(|(key, _)| *key != INSTANCE)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// Returns the labels of an owned object.
    pub(crate) fn labels(&self) -> Labels {
        union(self.inherited, &self.own())
    }

    /// Returns the labels that the operator itself sets on an owned object.
    fn own(&self) -> Labels {
        let mut labels = vec![
            (InternedStr::new(self.label), instance(self.name)),
            (InternedStr::new(NAME), instance(self.program)),
            (InternedStr::new(INSTANCE), instance(self.name)),
            (InternedStr::new(PART_OF), InternedStr::new(MANAGER)),
            (InternedStr::new(MANAGED_BY), InternedStr::new(MANAGER)),
            (InternedStr::new(CREATED_BY), InternedStr::from(format!("{}-controller", self.kind))),
        ];
        labels.extend(self.image.map(|image| (InternedStr::new(VERSION), version(image))));
        labels
            .extend(self.more.iter().map(|(key, value)| (InternedStr::new(key), instance(value))));
        labels.into_iter().collect()
    }

    /// Returns the label that selects the pods. It never changes for a custom resource, because a selector is
    /// immutable. No other custom resource of the namespace has the same one.
    pub(crate) fn selector(&self) -> Labels {
        [(self.label, instance(self.name))].into_iter().collect()
    }
}

/// Sets which labels are inherited. A second call has no effect.
pub(crate) fn inherit(entries: &[String]) {
    drop(INHERITED.set(entries.into()));
}

/// Returns whether owned objects inherit the label `key` of their custom resource.
pub(crate) fn is_inherited(key: &str) -> bool {
    INHERITED.get().is_some_and(|entries| entries.iter().any(|entry| covers(entry, key)))
}

/// Returns whether an entry of `--inherited-labels` is this key or a prefix of it.
fn covers(entry: &str, key: &str) -> bool {
    entry.strip_suffix('*').map_or(entry == key, |beginning| key.starts_with(beginning))
}

/// Parses an entry of `--inherited-labels`.
///
/// # Errors
/// If it is invalid, or covers labels of the operator or of Kubernetes.
pub(crate) fn inheritable(text: &str) -> Result<String, String> {
    let entry = text.trim();
    let beginning = entry.strip_suffix('*');
    let is_key = beginning.map_or_else(|| is_label_key(entry), begins_label_key);
    if !is_key {
        return Err(format!(
            "'{entry}' must be the key of a label such as team or example.com/team, or the beginning of keys with \
             '*' at its end such as example.com/*"
        ));
    }
    let own = OWN.iter().chain(&OF_KUBERNETES).find(|key| covers(entry, key)).copied();
    let recommended = beginning.unwrap_or(entry).starts_with(RECOMMENDED).then_some(RECOMMENDED);
    match own.or(recommended) {
        Some(taken) => Err(format!(
            "'{entry}' covers '{taken}', which the operator or Kubernetes sets: name other labels"
        )),
        None => Ok(entry.to_owned()),
    }
}

/// Returns whether `text` is the key of a label: an optional DNS name and `/`, then a name of up to 63
/// characters (k8s.io/apimachinery/pkg/util/validation, IsQualifiedName).
fn is_label_key(text: &str) -> bool {
    let ends = |part: &str| part.ends_with(|c: char| c.is_ascii_alphanumeric());
    let name = text.rsplit('/').next().unwrap_or(text);
    begins_label_key(text) && !name.is_empty() && name.len() <= MAX_VALUE && ends(name)
}

/// Returns whether the key of a label can begin like this.
fn begins_label_key(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let starts = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric());
    let (domain, name) = text.split_once('/').map_or((None, text), |(d, n)| (Some(d), n));
    let is_domain = |domain: &str| {
        let is_part = |part: &str| starts(part) && !part.ends_with('-');
        domain.len() <= 253 && domain.chars().all(is_dns) && domain.split('.').all(is_part)
    };
    let is_empty = domain.is_some() && name.is_empty();
    // Without '/', the text can be the beginning of a DNS name.
    let longest = if domain.is_none() { 253 } else { MAX_VALUE };
    domain.is_none_or(is_domain)
        && (is_empty || starts(name) && name.chars().all(is_name) && name.len() <= longest)
}

/// Returns the union of both. Where they differ, `own` takes precedence.
pub(crate) fn union(others: &Labels, own: &Labels) -> Labels {
    let both = others.iter().filter(|(key, _)| own.get(key).is_none()).chain(own.iter());
    both.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns whether a pod template must not have the label `key`: it selects the pods of a custom resource, or
/// Kubernetes distinguishes templates by it.
pub(crate) fn is_reserved(key: &str) -> bool {
    [MEMCACHED, GENERIC_DAEMON, APP_V1].contains(&key) || OF_KUBERNETES.contains(&key)
}

/// Returns whether an object with the labels `there` belongs to the custom resource whose owned objects have
/// the labels `wanted`. The label that selects pods can be missing.
pub(crate) fn are_of_same(there: &Labels, wanted: &Labels) -> bool {
    let is_same = |key: &&str| there.get(key).is_some() && there.get(key) == wanted.get(key);
    let is_other = |key: &&str| there.get(key).is_some() && there.get(key) != wanted.get(key);
    [INSTANCE, MANAGED_BY, CREATED_BY].iter().all(is_same)
        && ![MEMCACHED, GENERIC_DAEMON, APP_V1].iter().any(is_other)
}

/// Returns whether these are the labels of an owned object of any custom resource with this name.
pub(crate) fn are_of_child(there: &Labels, name: &str) -> bool {
    there.get(MANAGED_BY).is_some_and(|by| by == MANAGER)
        && there.get(INSTANCE).is_some_and(|of| *of == instance(name))
}

/// Returns the selector as `a=b,c=d`, the form that a HorizontalPodAutoscaler reads.
pub(crate) fn selector_text(selector: &Labels) -> String {
    let pairs: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// Returns the label value for an object of this name: the name or, if that is too long, its beginning and a
/// hash of the whole.
pub(crate) fn instance(name: &str) -> InternedStr {
    if name.len() <= MAX_VALUE {
        return label_value(name);
    }
    let hash = format!("{:016x}", fnv1a(name.as_bytes()));
    let beginning: String = name.chars().take(MAX_VALUE - 1 - hash.len()).collect();
    label_value(&format!("{beginning}-{hash}"))
}

/// Returns the label value for the version of an image: its tag, else the beginning of its digest, else
/// `latest`, as the container runtime does.
fn version(image: &str) -> InternedStr {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    label_value(tag.filter(|tag| !tag.is_empty()).or(digest).unwrap_or("latest"))
}

/// Returns `text` as a label value: invalid characters are replaced by `-`, or removed at both ends.
fn label_value(text: &str) -> InternedStr {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let value: String = text.chars().map(allowed).take(MAX_VALUE).collect();
    let value = value.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    InternedStr::new(if value.is_empty() { "unknown" } else { value })
}

/// Returns the 64-bit FNV-1a hash, which is stable across releases and machines, unlike the hash of the
/// standard library. Constants from <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);

    #[test]
    fn a_label_is_inherited_by_key_or_prefix() {
        for (entry, key, expected) in [
            ("team", "team", true),
            ("team", "team-b", false),
            ("team*", "team-b", true),
            ("example.com/*", "example.com/cost", true),
            ("example.com/*", "other.example.com/cost", false),
            ("example.com/cost-*", "example.com/cost", false),
        ] {
            assert_eq!(covers(&inheritable(entry).unwrap(), key), expected, "{entry} {key}");
        }
        assert_eq!(inheritable(" team "), Ok("team".to_owned()));
        assert!(!is_inherited("team"), "nothing is inherited until the flag says so");
    }

    #[test]
    fn invalid_keys_and_own_labels_are_not_inheritable() {
        let long = "x".repeat(64);
        for bad in
            ["", "-a", "a-", "a b", "a/b/c", "/a", "A_b/c", "a/", "a..b/c", "te*am", "**", &long]
        {
            let refused = inheritable(bad).expect_err(bad);
            assert!(refused.contains("must be the key of a label"), "{bad}: {refused}");
        }
        for taken in [
            "app",
            "a*",
            "memcached_cr",
            "app.kubernetes.io/team",
            "app.kubernetes.io/*",
            "cache.example.com/*",
            "app.example.com/v1",
            "pod-template-*",
        ] {
            let refused = inheritable(taken).expect_err(taken);
            assert!(
                refused.contains("which the operator or Kubernetes sets"),
                "{taken}: {refused}"
            );
        }
    }

    #[test]
    fn inherited_labels_replace_no_own_label_and_select_nothing() {
        let inherited = [("team", "a"), (MEMCACHED_CR, "mine")].into_iter().collect();
        let identity = Identity { inherited: &inherited, ..identity("cart", None) };
        let labels = identity.labels();
        assert_eq!(labels.get("team").unwrap(), "a");
        assert_eq!(labels.get(MEMCACHED_CR).unwrap(), "cart");
        assert_eq!(identity.selector(), Identity { inherited: &NONE, ..identity }.selector());
    }

    fn is_label_value(value: &str) -> bool {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        value.len() <= 63
            && ends(value.chars().next())
            && ends(value.chars().last())
            && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    }

    #[test]
    fn labels_identify_the_custom_resource_of_an_owned_object() {
        let wanted = identity("cart", Some("memcached:1")).labels();
        let with = |key: &str, value: Option<&str>| -> Labels {
            let others = wanted.iter().filter(|(k, _)| **k != *key);
            let others = others.map(|(k, v)| (k.clone(), v.clone()));
            others.chain(value.map(|v| (InternedStr::new(key), InternedStr::new(v)))).collect()
        };
        for (key, value, expected) in [
            (VERSION, Some("0"), true),
            (MEMCACHED, None, true),
            (MEMCACHED, Some("other"), false),
            (APP_V1, Some("cart"), false),
            (INSTANCE, None, false),
            (INSTANCE, Some("other"), false),
            (CREATED_BY, Some("app-controller"), false),
            (MANAGED_BY, Some("Helm"), false),
        ] {
            let there = with(key, value);
            assert_eq!(are_of_same(&there, &wanted), expected, "{key}={value:?}");
        }
        assert!(are_of_child(&wanted, "cart") && !are_of_child(&wanted, "other"));
    }

    fn identity<'a>(name: &'a str, image: Option<&'a str>) -> Identity<'a> {
        let more = vec![(MEMCACHED_CR, name)];
        let (kind, program) = ("memcached", "memcached");
        Identity { kind, program, label: MEMCACHED, name, image, more, inherited: &NONE }
    }

    #[test]
    fn the_version_is_the_tag_then_the_digest_then_latest() {
        for (image, expected) in [
            ("nginx", "latest"),
            ("nginx:1.16.1", "1.16.1"),
            ("registry:5000/team/nginx", "latest"),
            ("registry:5000/team/nginx:1", "1"),
            (
                "nginx@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "sha256-0123456789abcdef0123456789abcdef0123456789abcdef01234567",
            ),
            ("nginx:1@sha256:0123", "1"),
            ("nginx:", "latest"),
            ("nginx:_", "unknown"),
        ] {
            assert_eq!(version(image), expected, "{image}");
        }
    }

    #[test]
    fn long_names_with_the_same_beginning_have_different_label_values() {
        let (a, b) = ("x".repeat(200), "x".repeat(201));
        assert_ne!(instance(&a), instance(&b));
        assert_eq!(instance(&a), instance(&a));
    }

    proptest! {
        #[test]
        fn label_values_are_valid_for_any_image(image in "[!-~]{1,300}") {
            for (key, value) in identity("a", Some(&image)).labels().iter() {
                prop_assert!(is_label_value(value), "{key}={value}");
            }
        }

        #[test]
        fn label_values_are_valid_for_any_name(
            name in "[a-z0-9]([a-z0-9]|[-a-z0-9]{0,80}[a-z0-9])([.][a-z0-9]{1,100})?"
        ) {
            for (key, value) in identity(&name, None).labels().iter() {
                prop_assert!(is_label_value(value), "{key}={value}");
            }
        }

        #[test]
        fn the_selector_depends_on_nothing_but_kind_and_name(
            name in "[a-z]{1,80}", a in "[!-~]{1,60}", b in "[!-~]{1,60}"
        ) {
            let (a, b) = (identity(&name, Some(&a)), identity(&name, Some(&b)));
            prop_assert_eq!(a.selector(), b.selector());
            let (selector, labels) = (a.selector(), a.labels());
            prop_assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
            prop_assert_eq!(a.selector().iter().count(), 1);
        }
    }
}
