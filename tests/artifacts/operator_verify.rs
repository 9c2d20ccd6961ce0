//! The bundle, checked by the Operator Framework's own program, which `hack/olm.sh` builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::unchecked::built_by;

/// Its message about every bundle, because of the option `--operatorhub_validate`.
const EXPECTED: &str = "The \\\"operatorhub\\\" validator is deprecated";

fn operator_verify() -> Option<PathBuf> {
    let olm = built_by("hack/olm.sh", "the OLM bundle with operator-verify")?;
    Some(olm.with_file_name("operator-verify"))
}

/// Returns the unexpected lines that the program prints for a folder. It always exits with 0.
fn complaints(program: &Path, folder: &Path) -> Vec<String> {
    let arguments = ["manifests", "--operatorhub_validate", "--object_validate"];
    let output = Command::new(program).args(arguments).arg(folder).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let unexpected = said.lines().filter(|line| !line.contains(EXPECTED));
    unexpected.map(str::to_owned).collect()
}

#[test]
fn operator_verify_accepts_the_bundle() {
    let Some(program) = operator_verify() else { return };
    let bundle = tempfile::tempdir().unwrap();
    crate::packages::write_bundle(bundle.path(), &[]);
    let manifests = bundle.path().join("manifests");
    let found = complaints(&program, &manifests);
    assert!(found.is_empty(), "{}", found.join("\n"));

    // This shows that the program works: it reports a missing CRD that the ClusterServiceVersion owns.
    std::fs::remove_file(manifests.join("app.example.com_apps.yaml")).unwrap();
    let found = complaints(&program, &manifests);
    assert!(found.iter().any(|line| line.contains("app.example.com")), "{found:?}");
}
