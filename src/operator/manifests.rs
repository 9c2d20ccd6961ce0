//! The manifests to apply so that the operator runs in a cluster.

use std::io::Write;

use super::crds::CRDS;
use super::error::Error;

/// The other files of artifacts/default, in an order in which they can be applied: the RBAC file
/// comes first because it contains the namespace.
const REST: [&str; 6] = [
    include_str!("../../artifacts/rbac/operator.yaml"),
    include_str!("../../artifacts/rbac/people.yaml"),
    include_str!("../../artifacts/policy/generic-daemon.yaml"),
    include_str!("../../artifacts/default/service.yaml"),
    include_str!("../../artifacts/default/network-policy.yaml"),
    include_str!("../../artifacts/default/pod-disruption-budget.yaml"),
];
const DEPLOYMENT: &str = include_str!("../../artifacts/default/deployment.yaml");

/// Prints all of it, to be piped into `kubectl apply --server-side -f -`. `image` is the operator's
/// image.
pub(super) fn print(image: Option<&str>) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_the_one_that_was_asked_for() {
        assert!(with_image(None).contains("image: workload-operator:"));
        let other = with_image(Some("registry.example.com/op:2"));
        assert!(other.contains("image: \"registry.example.com/op:2\""), "{other}");
        assert!(!other.contains("image: workload-operator:"));
    }
}
