//! K: the API server.

use std::time::Duration;

use tokio::time::Instant;

use super::finding::{Finding, K001, K002};
use crate::client::{Client, Error};

/// The oldest supported minor version of Kubernetes 1.
const OLDEST: u32 = 30;
/// The newest that the tests run on.
const NEWEST: u32 = 36;

/// The API server's version, as it reports it.
pub(super) struct Version {
    /// For example `v1.36.3`.
    name: String,
    took: Duration,
}

pub(super) async fn version(client: &Client) -> Result<Version, Error> {
    let asked = Instant::now();
    let answer = client.read_path("/version").await?;
    let name = answer["gitVersion"].as_str().unwrap_or_default().to_owned();
    Ok(Version { name, took: asked.elapsed() })
}

pub(super) fn findings(version: &Version) -> Vec<Finding> {
    let reached = K001.ok(format!("{}, {} ms", version.name, version.took.as_millis()));
    let supported = match minor(&version.name) {
        Some(minor) if minor > NEWEST => {
            K002.ok(format!("{} is newer than what was tested, 1.{NEWEST}", version.name))
        }
        Some(minor) if minor >= OLDEST => K002.ok(""),
        Some(_) => K002.fail(format!("{} is older", version.name)),
        None => K002.warn(format!("{:?} is not understood", version.name)),
    };
    vec![reached, supported]
}

pub(super) fn unreachable(error: &Error) -> Finding {
    K001.fail(error.to_string())
}

/// The minor version in `v1.36.3-eks-1`; a later major version counts as newer than any.
fn minor(name: &str) -> Option<u32> {
    let mut numbers = name.strip_prefix('v')?.split('.');
    let major: u32 = numbers.next()?.parse().ok()?;
    let digits = numbers.next()?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let minor: u32 = digits.get(..end)?.parse().ok()?;
    Some(if major > 1 { u32::MAX } else { minor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::check::finding::Outcome;

    fn judged(name: &str) -> Outcome {
        findings(&Version { name: name.to_owned(), took: Duration::ZERO })[1].outcome
    }

    #[test]
    fn a_version_is_judged_by_its_minor_number_however_it_is_dressed() {
        for fine in ["v1.30.0", "v1.36.3", "v1.31.2-eks-abc", "v1.33+", "v2.0.0"] {
            assert_eq!(judged(fine), Outcome::Ok, "{fine}");
        }
        assert_eq!(judged("v1.29.15"), Outcome::Fail);
        assert_eq!(judged("v1.9.0"), Outcome::Fail);
        assert_eq!(judged("strange"), Outcome::Warn);
    }

    #[test]
    fn the_title_names_the_oldest_and_the_newest_version() {
        let range = format!("(1.{OLDEST} or newer, tested up to 1.{NEWEST})");
        assert!(K002.title.ends_with(&range), "{} {range}", K002.title);
    }
}
