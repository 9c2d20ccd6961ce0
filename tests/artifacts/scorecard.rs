//! The bundle, checked by the tests that its scorecard configuration names: `hack/olm.sh` builds
//! the program that is in their image.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::unchecked::{built_by, not_checked};

const CSV: &str = "manifests/workload-operator.clusterserviceversion.yaml";

/// Its suggestion for every bundle whose examples have no status, because users do not write one.
const EXPECTED: &str = "does not have status spec";

const UNCHECKED: &str = "the OLM bundle with scorecard's tests";

/// Returns the program. `None`, reported as not checked, if it cannot be built, or if a process cannot have
/// its own root folder: the program reads the bundle from /bundle.
fn program() -> Option<PathBuf> {
    let olm = built_by("hack/olm.sh", UNCHECKED)?;
    match Command::new("unshare").args(["--map-root-user", "true"]).output() {
        Ok(output) if output.status.success() => Some(olm.with_file_name("scorecard-test")),
        Ok(output) => {
            not_checked(UNCHECKED, &String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            not_checked(UNCHECKED, &format!("unshare: {error}"));
            None
        }
    }
}

/// A root folder with the program and the bundle.
fn root_with(program: &Path) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(program, root.path().join("scorecard-test")).unwrap();
    let written = Command::new("hack/bundle.sh").arg(root.path().join("bundle")).status();
    assert!(written.unwrap().success());
    root
}

fn yaml(path: &Path) -> Value {
    serde_yaml_ng::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the complaints of the configuration's tests, and each test that did not pass.
fn complaints(root: &Path) -> Vec<String> {
    let config = yaml(&root.join("bundle/tests/scorecard/config.yaml"));
    let tests = config["stages"][0]["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 6);
    tests.iter().flat_map(|test| complaints_of(root, test)).collect()
}

fn complaints_of(root: &Path, test: &Value) -> Vec<String> {
    let words = test["entrypoint"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let [program, name] = words.collect::<Vec<_>>()[..] else { panic!("{test}") };
    let mut command = Command::new("unshare");
    command.arg("--map-root-user").arg("--root").arg(root).arg(format!("/{program}")).arg(name);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [result] = &status["results"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!(result["name"], name);
    let said = ["errors", "suggestions"].map(|key| result[key].as_array().cloned());
    let said = said.into_iter().flatten().flatten().map(|line| line.as_str().unwrap().to_owned());
    let mut all: Vec<_> = said.filter(|line| !line.contains(EXPECTED)).collect();
    if result["state"] != "pass" {
        all.push(format!("{name}: {}", result["state"]));
    }
    all
}

#[test]
fn the_bundle_passes_the_scorecard_tests_that_it_names() {
    let Some(program) = program() else { return };
    let root = root_with(&program);
    let found = complaints(root.path());
    assert!(found.is_empty(), "{}", found.join("\n"));

    // This shows that the tests work: they check, for example, the resources of a kind.
    let file = root.path().join("bundle").join(CSV);
    let mut csv = yaml(&file);
    let owned = &mut csv["spec"]["customresourcedefinitions"]["owned"][0];
    owned.as_object_mut().unwrap().remove("resources").unwrap();
    std::fs::write(&file, csv.to_string()).unwrap();
    let found = complaints(root.path());
    assert!(found.contains(&"olm-crds-have-resources: \"fail\"".to_owned()), "{found:?}");
}

#[test]
fn the_scorecard_tests_have_the_version_that_the_bundle_names() {
    let module = std::fs::read_to_string("hack/olm/go.mod").unwrap();
    let pinned = "github.com/operator-framework/operator-sdk ";
    let version = module.split_once(pinned).unwrap().1.split_whitespace().next().unwrap();
    let config = yaml(Path::new("artifacts/olm/tests/scorecard/config.yaml"));
    for test in config["stages"][0]["tests"].as_array().unwrap() {
        let image = format!("quay.io/operator-framework/scorecard-test:{version}");
        assert_eq!(test["image"], image);
    }
}
