//! The permitted dependencies between modules. Cargo enforces those between the library and the operator.
//!
//! The table below is the only list of which module can use which. An edge or a module that is not in it, or
//! a cycle, fails the tests. docs/ARCHITECTURE.md explains the boundaries.

// An unexpected result fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of the library and of the operator.
const CRATES: [&str; 2] = ["crates/machinery/src", "src"];

/// Each module with the modules that it can use, in the order of the two `lib.rs`: the order in which a
/// change travels.
const MAY_USE: &[(&str, &[&str])] = &[
    ("identity", &[]),
    ("clock", &[]),
    ("object", &[]),
    ("shutdown", &[]),
    ("instruments", &[]),
    ("client", &["identity", "instruments", "object"]),
    ("store", &["object"]),
    ("reflector", &["identity", "instruments", "client", "store", "object", "shutdown"]),
    ("informer", &["reflector", "store", "client", "object", "shutdown"]),
    ("workqueue", &["instruments"]),
    // Of the client, only the error, which has a hint.
    (
        "controller",
        &["client", "instruments", "workqueue", "informer", "store", "object", "shutdown"],
    ),
    ("events", &["identity", "instruments", "clock", "client", "object", "shutdown"]),
    ("leader_election", &["instruments", "clock", "client", "object", "shutdown"]),
    // Exports what the others count, and reads their state at each scrape.
    (
        "metrics",
        &["identity", "client", "reflector", "informer", "workqueue", "instruments", "object"],
    ),
    // Above all of them.
    (
        "manager",
        &[
            "identity",
            "client",
            "store",
            "reflector",
            "informer",
            "controller",
            "events",
            "clock",
            "leader_election",
            "metrics",
            "object",
            "shutdown",
            "workqueue",
        ],
    ),
    // For tests of controllers.
    ("testing", &["client", "clock", "manager", "object", "shutdown"]),
    // The operator.
    ("schema", &[]),
    (
        "workload",
        &["client", "clock", "controller", "events", "manager", "object", "schema", "store"],
    ),
    (
        "memcached",
        &["client", "controller", "events", "manager", "object", "schema", "store", "workload"],
    ),
    (
        "generic_daemon",
        &["client", "controller", "events", "manager", "object", "schema", "store", "workload"],
    ),
    (
        "app",
        &["client", "controller", "events", "manager", "object", "schema", "store", "workload"],
    ),
    ("crds", &["app", "generic_daemon", "memcached", "workload"]),
    (
        "cli",
        &[
            "app",
            "client",
            "controller",
            "crds",
            "generic_daemon",
            "identity",
            "leader_election",
            "manager",
            "memcached",
            "metrics",
            "object",
            "shutdown",
            "workload",
        ],
    ),
    (
        "operator",
        &[
            "app",
            "cli",
            "client",
            "controller",
            "generic_daemon",
            "leader_election",
            "manager",
            "memcached",
            "metrics",
            "shutdown",
            "workload",
        ],
    ),
];

#[test]
fn every_module_uses_only_allowed_modules() {
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    for (module, edges) in modules() {
        let allowed = allowed.get(module.as_str()).unwrap_or_else(|| {
            panic!("{module} is a module that MAY_USE in tests/architecture.rs does not know")
        });
        for (used, file) in edges {
            assert!(
                allowed.contains(&used.as_str()),
                "{} uses crate::{used}, but {module} may use only {allowed:?}",
                file.display()
            );
        }
    }
}

#[test]
fn there_is_no_cycle_between_modules() {
    let edges: BTreeMap<String, BTreeSet<String>> =
        modules().into_iter().map(|(module, used)| (module, used.into_keys().collect())).collect();
    for start in edges.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            for used in edges.get(module).into_iter().flatten() {
                assert_ne!(used, start, "{start} → … → {module} → {start} is a cycle");
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
    }
}

/// Only compiled code is reliable, so each block is part of an example or of the library's documentation.
#[test]
fn the_code_of_the_guide_is_that_of_the_examples() {
    let folders = ["crates/machinery/examples", "crates/machinery/src"];
    let sources = folders.map(|folder| sources(Path::new(folder))).concat();
    let plain = |text: &str| {
        let lines = text.lines().map(|line| line.trim().trim_start_matches("///").trim());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let sources: Vec<String> =
        sources.iter().map(|file| plain(&fs::read_to_string(file).unwrap())).collect();
    let pages = ["YOUR_OWN_CONTROLLER", "RECIPES", "TEST_YOUR_CONTROLLER"];
    let guide = pages.map(|page| fs::read_to_string(format!("docs/{page}.md")).unwrap()).concat();
    let blocks = guide.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut checked = 0;
    for block in blocks {
        let is_there = sources.iter().any(|source| source.contains(&plain(block)));
        assert!(is_there, "no example has this block of the guide:\n{block}");
        checked += 1;
    }
    assert!(checked > 8, "{checked} blocks");
}

/// Each module with the modules it uses, and for each of these one file that does.
fn modules() -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let mut modules = BTreeMap::new();
    for entry in CRATES.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        if module == "lib" || module == "main" {
            continue;
        }
        let mut used = BTreeMap::new();
        for file in sources(&path) {
            for other in uses(&code(&file)) {
                if other != module {
                    used.insert(other, file.clone());
                }
            }
        }
        modules.insert(module, used);
    }
    modules
}

/// Returns the modules named by `crate::module` paths, also inside `use crate::{module::…, module::…}`.
fn uses(code: &str) -> BTreeSet<String> {
    let names: BTreeSet<&str> = MAY_USE.iter().map(|(module, _)| *module).collect();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let words: Vec<String> = if rest.starts_with('{') {
            let list = &rest[1..rest.find(';').unwrap_or(rest.len())];
            list.split(',').map(first_word).collect()
        } else {
            vec![first_word(rest)]
        };
        found.extend(words.into_iter().filter(|word| names.contains(word.as_str())));
    }
    found
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns a file's code without comments and tests, because tests can use any module.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The Rust files under `path`, or `path` itself, without test modules.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(path) else { return files };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
    files
}
