//! Reports of checks that this machine does not allow, and the programs of hack/ whose absence is
//! a reason.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Reports in one line what is not checked and why. No test harness swallows it, as it would the
/// output of a macro in a passing test.
pub(crate) fn not_checked(what: &str, why: &str) {
    let line = format!("\nNOT CHECKED: {what}: {}\n", why.trim().replace('\n', "; "));
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
}

/// The program that `script build` has built. `None`, reported as not checked, if it is not built
/// (status 3): its build takes minutes, and `cargo test` is not to wait for it.
pub(crate) fn built_by(script: &str, unchecked: &str) -> Option<PathBuf> {
    let output = Command::new(script).arg("which").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(String::from_utf8(output.stdout).unwrap().trim().into()),
        Some(3) => {
            not_checked(unchecked, &stderr);
            None
        }
        _ => panic!("{script} which: {stderr}"),
    }
}
