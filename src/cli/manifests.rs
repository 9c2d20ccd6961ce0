//! Files that the binary prints: the CustomResourceDefinitions, all manifests, shell completions.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Error;
use super::args::Cli;

/// The files in artifacts/crds/, which hack/update-codegen.sh generates from the types in the module
/// `api`; a test compares the two.
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
    include_str!("../../artifacts/rbac/people.yaml"),
    include_str!("../../artifacts/policy/app.yaml"),
    include_str!("../../artifacts/policy/generic-daemon.yaml"),
    include_str!("../../artifacts/policy/memcached.yaml"),
    include_str!("../../artifacts/policy/operator.yaml"),
    include_str!("../../artifacts/default/service.yaml"),
    include_str!("../../artifacts/default/network-policy.yaml"),
    include_str!("../../artifacts/default/pod-disruption-budget.yaml"),
];
const DEPLOYMENT: &str = include_str!("../../artifacts/default/deployment.yaml");

const NAME: &str = "workload-operator";

/// Prints them all, to be piped into `kubectl apply --server-side -f -`; a Memcached may have up to `max_size`
/// instances.
pub(crate) fn print_crds(max_size: u8) -> Result<(), Error> {
    let text = CRDS.map(|crd| with_max_size(crd, max_size)).join("---\n");
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

/// Replaces the only bound of 3 in the CustomResourceDefinitions, that of a Memcached's size.
fn with_max_size(crd: &str, max_size: u8) -> String {
    crd.replace("maximum: 3\n", &format!("maximum: {max_size}\n"))
}

/// Prints all of it, to be piped into `kubectl apply --server-side -f -`. `image` is the operator's
/// image.
pub(crate) fn print(image: Option<&str>) -> Result<(), Error> {
    let all: Vec<&str> = CRDS.into_iter().chain(REST).collect();
    let mut text = all.join("---\n");
    text.push_str("---\n");
    text.push_str(&with_image(image));
    std::io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

fn with_image(image: Option<&str>) -> String {
    const OURS: &str = concat!("image: workload-operator:", env!("CARGO_PKG_VERSION"));
    match image {
        None => DEPLOYMENT.to_owned(),
        Some(image) => {
            // A JSON string is valid YAML, whatever it contains.
            let quoted = serde_json::Value::from(image).to_string();
            DEPLOYMENT.replace(OURS, &format!("image: {quoted}"))
        }
    }
}

/// Prints the script that a shell sources to complete the command line.
pub(crate) fn print_completions(shell: Shell) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    if shell == Shell::Bash {
        script = mended(&script).into_bytes();
    }
    std::io::stdout().write_all(&script).map_err(Error::Print)
}

/// clap_complete 4.6 spells a program's name that has a hyphen in two ways, so that bash completes
/// nothing after a subcommand (github.com/clap-rs/clap/issues/6421). Once that is fixed upstream,
/// this changes nothing.
fn mended(script: &[u8]) -> String {
    let script = String::from_utf8_lossy(script);
    script.replace("workload__subcmd__operator", "workload__operator")
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

    #[test]
    fn the_image_is_the_one_that_was_asked_for() {
        assert!(with_image(None).contains("image: workload-operator:"));
        let other = with_image(Some("registry.example.com/op:2"));
        assert!(other.contains("image: \"registry.example.com/op:2\""), "{other}");
        assert!(!other.contains("image: workload-operator:"));
    }
}
