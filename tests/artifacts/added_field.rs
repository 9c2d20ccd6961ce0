//! A field of a custom resource, added in a copy of the repository as CONTRIBUTING describes it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Declares `spec.backlog` of Memcached, and uses it.
const EDITS: [(&str, &str, &str); 2] = [
    (
        "src/memcached/spec.rs",
        "    /// Number of threads of an instance.",
        "    /// Number of connections that wait to be accepted. Defaults to 1024.
    #[serde(default, deserialize_with = \"unless_zero\", skip_serializing_if = \"Option::is_none\")]
    #[schemars(range(min = 0, max = 65535))]
    pub backlog: Option<i32>,
",
    ),
    (
        "src/memcached/pod.rs",
        "    if let Some(threads) = spec.threads {",
        "    if let Some(backlog) = spec.backlog {
        add(\"-b\", backlog.to_string());
    }
",
    ),
];

#[test]
#[ignore = "compiles the operator: cargo test --test artifacts -- --ignored"]
fn a_field_needs_one_declaration_and_its_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = root.join("target/added-field");
    let tracked = Command::new("git").arg("ls-files").current_dir(root).output().unwrap();
    let tracked = String::from_utf8(tracked.stdout).unwrap();
    // Without src/main.rs, because its binary would replace the one that other tests run.
    let is_copied = |file: &&str| root.join(file).is_file() && *file != "src/main.rs";
    for file in tracked.lines().filter(is_copied) {
        let to = copy.join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(root.join(file), to).unwrap();
    }
    for (file, before, added) in EDITS {
        let text = fs::read_to_string(copy.join(file)).unwrap();
        assert_eq!(text.matches(before).count(), 1, "{file}");
        fs::write(copy.join(file), text.replacen(before, &format!("{added}{before}"), 1)).unwrap();
    }
    // The target folder is the same, because it contains the built dependencies. Cargo separates the operator
    // by its profile.
    let output = Command::new(env!("CARGO"))
        .args(["--config", "profile.dev.package.workload-operator.codegen-units=15"])
        .args(["test", "--quiet", "--locked", "--test", "artifacts", "the_crd_files"])
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("UPDATE_ARTIFACTS", "1")
        .current_dir(&copy)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let crd = fs::read_to_string(copy.join("artifacts/crds/cache.example.com_memcacheds.yaml"));
    assert!(crd.unwrap().contains("\n              backlog:\n"), "the CRD has it");
    fs::remove_dir_all(copy).unwrap();
}
