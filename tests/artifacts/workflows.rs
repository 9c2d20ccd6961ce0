//! The workflows in .github: each step is a script of this repository, which runs on any machine.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::packages::{names_in, read};

/// Other commands with which a step can begin.
const RUNNERS: [&str; 6] = ["sudo", "rustup", "printf", "gh", "cargo", "KUBERNETES_VERSIONS=all"];

#[test]
fn each_step_runs_a_script_that_exists() {
    let mut scripts = 0;
    for file in names_in(".github/workflows") {
        let file = format!(".github/workflows/{file}");
        let workflow: Value = serde_yaml_ng::from_str(&read(&file)).unwrap();
        for job in workflow["jobs"].as_object().unwrap().values() {
            let steps = job["steps"].as_array().unwrap().iter();
            let campaigns = job["strategy"]["matrix"]["include"].as_array().into_iter().flatten();
            let commands = steps.chain(campaigns).filter_map(|step| step["run"].as_str());
            let lines = commands.flat_map(str::lines).filter(|line| *line != "${{ matrix.run }}");
            for line in lines {
                let words = || line.split_whitespace();
                for script in words().filter(|w| w.starts_with("hack/") || w.starts_with(".ci/")) {
                    assert!(!read(script).is_empty(), "{file}: there is no {script}");
                    scripts += 1;
                }
                let first = words().next().unwrap();
                let known = RUNNERS.contains(&first) || first.contains('/');
                assert!(known, "{file}: {line}: put it into a script in hack/");
            }
        }
    }
    assert!(scripts > 8, "{scripts} scripts");
}

/// Dependabot updates the images alone.
#[test]
fn workflows_use_the_rust_of_the_images() {
    let manifest = read("Cargo.toml");
    let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let of_image = |file: &str| {
        let text = read(file);
        let (_, tag) = text.split_once("FROM docker.io/library/rust:").expect(file);
        tag.split_once('-').unwrap().0.to_owned()
    };
    let version = of_image("Dockerfile");
    assert_eq!(version, of_image("template/Dockerfile"));
    let known = [format!("{version}.0"), oldest.trim_matches('"').to_owned()];
    for file in names_in(".github/workflows") {
        for line in read(&format!(".github/workflows/{file}")).lines() {
            let Some((_, named)) = line.split_once("RUSTUP_TOOLCHAIN: ") else { continue };
            assert!(known.iter().any(|one| one == named.trim_matches('\'')), "{file}: {line}");
        }
    }
}

/// A tag can be moved to other code, a commit cannot. Dependabot reads the version from the comment.
#[test]
fn each_action_is_pinned_to_a_commit() {
    for file in names_in(".github/workflows") {
        for line in read(&format!(".github/workflows/{file}")).lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            let (_, pin) = action.split_once('@').unwrap();
            let (commit, version) = pin.split_once(" # v").expect(line);
            assert!(commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{line}");
        }
    }
}

/// Parts of the test clusters. Their versions are updated manually, together with the documents that name
/// them.
const NOT_FOLLOWED: [&str; 2] = ["hack/controlplane/", "hack/e2e/"];

#[test]
fn dependabot_follows_every_lock_file() {
    let settings: Value = serde_yaml_ng::from_str(&read(".github/dependabot.yml")).unwrap();
    let updates = settings["updates"].as_array().unwrap().iter();
    let folders = updates.filter_map(|update| update["directories"].as_array()).flatten();
    let followed: BTreeSet<String> =
        folders.map(|folder| folder.as_str().unwrap().trim_start_matches('/').to_owned()).collect();
    let git = Command::new("git").args(["ls-files", "*Cargo.lock", "*go.sum"]).output().unwrap();
    let locked: BTreeSet<String> = String::from_utf8(git.stdout)
        .unwrap()
        .lines()
        .filter(|file| !NOT_FOLLOWED.iter().any(|folder| file.starts_with(folder)))
        .map(|file| file.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned())
        .collect();
    assert_eq!(followed, locked);
}
