//! Files that the binary prints: the CustomResourceDefinitions, all manifests, shell completions.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Error;
use super::NAMESPACE;
use super::args::{Cli, ManifestsArgs};

/// The files in artifacts/crds/, which hack/update-codegen.sh generates from the types. A test compares them.
pub(crate) const CRDS: [&str; 3] = [
    include_str!("../../artifacts/crds/app.example.com_apps.yaml"),
    include_str!("../../artifacts/crds/cache.example.com_memcacheds.yaml"),
    include_str!("../../artifacts/crds/mydomain.com_genericdaemons.yaml"),
];

/// The other files of artifacts/default, in an order in which they can be applied: the RBAC file
/// comes first because it contains the namespace.
const REST: [&str; 11] = [
    include_str!("../../artifacts/rbac/operator.yaml"),
    include_str!("../../artifacts/rbac/metrics.yaml"),
    include_str!("../../artifacts/rbac/metrics-reader.yaml"),
    include_str!("../../artifacts/rbac/user-roles.yaml"),
    include_str!("../../artifacts/policy/app.yaml"),
    include_str!("../../artifacts/policy/generic-daemon.yaml"),
    include_str!("../../artifacts/policy/memcached.yaml"),
    include_str!("../../artifacts/policy/operator.yaml"),
    include_str!("../../artifacts/default/service.yaml"),
    include_str!("../../artifacts/default/network-policy.yaml"),
    include_str!("../../artifacts/default/pod-disruption-budget.yaml"),
];
const DEPLOYMENT: &str = include_str!("../../artifacts/default/deployment.yaml");

/// Text that the flags of `manifests` replace.
const OUR_IMAGE: &str = concat!("image: workload-operator:", env!("CARGO_PKG_VERSION"));
const MEMCACHED_IMAGE: &str = "value: memcached:1.6.38-alpine";
const EXPORTER_IMAGE: &str = "value: quay.io/prometheus/memcached-exporter:v0.16.0";
const REPLICAS: &str = "replicas: 1";

const NAME: &str = "workload-operator";

/// Prints the CustomResourceDefinitions for `kubectl apply --server-side -f -`. A Memcached can have up to
/// `max_size` instances.
pub(crate) fn print_crds(max_size: u8) -> Result<(), Error> {
    let text = CRDS.map(|crd| with_max_size(crd, max_size)).join("---\n");
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

/// Replaces the only bound of 3 in the CustomResourceDefinitions, that of a Memcached's size.
fn with_max_size(crd: &str, max_size: u8) -> String {
    crd.replace("maximum: 3\n", &format!("maximum: {max_size}\n"))
}

/// Prints all manifests for `kubectl apply --server-side -f -`.
pub(crate) fn print(args: &ManifestsArgs) -> Result<(), Error> {
    std::io::stdout().write_all(all(args).as_bytes()).map_err(Error::Print)
}

fn all(args: &ManifestsArgs) -> String {
    let crds = CRDS.map(|crd| with_max_size(crd, args.memcached_max_size));
    let mut rest = [&REST[..], &[DEPLOYMENT]].concat().join("---\n");
    let mut set = |ours: &str, value: Option<String>| {
        if let Some(value) = value {
            rest = rest.replace(ours, &value);
        }
    };
    // This comes first, because an image's name can contain that of the namespace.
    set(NAMESPACE, Some(args.namespace.clone()));
    // A JSON string is valid YAML, whatever it contains.
    let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
    let image = |field: &str, image: &Option<String>| {
        image.as_ref().map(|image| format!("{field}: {}", quoted(image)))
    };
    set(OUR_IMAGE, image("image", &args.image));
    set(MEMCACHED_IMAGE, image("value", &args.memcached_image));
    set(EXPORTER_IMAGE, image("value", &args.memcached_exporter_image));
    set(REPLICAS, Some(format!("replicas: {}", args.replicas)));
    if args.without_crds { rest } else { [&crds.join("---\n"), "---\n", &rest].concat() }
}

/// Prints the script that a shell sources to complete the command line.
pub(crate) fn print_completions(shell: Shell) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    // clap_complete spells a name with a hyphen in two ways (github.com/clap-rs/clap/issues/6421).
    let script = String::from_utf8_lossy(&script);
    let script = script.replace("workload__subcmd__operator", "workload__operator");
    std::io::stdout().write_all(script.as_bytes()).map_err(Error::Print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bound_of_a_memcacheds_size_is_raised() {
        let raised = CRDS.map(|crd| with_max_size(crd, 8)).join("");
        let changed =
            raised.lines().zip(CRDS.join("").lines().map(str::to_owned).collect::<Vec<_>>());
        let changed: Vec<_> =
            changed.filter(|(new, old)| new != old).map(|(new, _)| new.trim()).collect();
        assert_eq!(changed, ["maximum: 8"]);
    }

    fn printed(arguments: &[&str]) -> String {
        let arguments = ["workload-operator", "manifests"].iter().chain(arguments);
        match crate::cli::parse_from(arguments).unwrap().command {
            Some(crate::cli::Command::Manifests(args)) => all(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_flag_of_manifests_changes_only_its_setting() {
        let before = printed(&[]);
        for (flag, old, new, count) in [
            (
                "--image=registry.example.com/op:2",
                OUR_IMAGE,
                "image: \"registry.example.com/op:2\"",
                1,
            ),
            ("--memcached-image=m:2", MEMCACHED_IMAGE, "value: \"m:2\"", 1),
            ("--memcached-exporter-image=e:2", EXPORTER_IMAGE, "value: \"e:2\"", 1),
            ("--replicas=2", REPLICAS, "replicas: 2", 1),
            ("--memcached-max-size=8", "maximum: 3\n", "maximum: 8\n", 1),
            ("--namespace=ops", NAMESPACE, "ops", 0),
        ] {
            let image = format!("--image=registry/{NAMESPACE}/op:1");
            assert!(printed(&[&image, "-n=ops"]).contains(&format!("registry/{NAMESPACE}/op:1")));
            let after = printed(&[flag]);
            assert_eq!(after, before.replace(old, new), "{flag}");
            let found = before.matches(old).count();
            assert!(if count == 0 { found > 5 } else { found == count }, "{flag}: {found}");
        }
    }
}
