//! The generated files under `artifacts/` and `docs/`, compared with what they are generated from.

// An unexpected result fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use workload_operator::cli::Cli;
use workload_operator::crds;

mod lua;
#[path = "artifacts/packages.rs"]
mod packages;
#[path = "artifacts/image.rs"]
mod image;
#[path = "artifacts/argocd.rs"]
mod argocd;
#[path = "artifacts/reference.rs"]
mod reference;
#[path = "artifacts/workflows.rs"]
mod workflows;

/// With `UPDATE_ARTIFACTS=1` the files are written first.
#[test]
fn the_crd_files_match_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts/crds");
    let mut expected = Vec::new();
    for (name, text) in crd_files() {
        if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
            fs::write(folder.join(&name), &text).unwrap();
        }
        let there = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(there == text, "artifacts/crds/{name} is out of date: run hack/update-codegen.sh");
        expected.push(name);
    }
    let mut there: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "Kustomization")
        .collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "artifacts/crds/ has files that no type makes");
}

/// The file name and text of each CRD.
fn crd_files() -> Vec<(String, String)> {
    let file = |crd| {
        let mut value = serde_json::to_value(&crd).unwrap();
        write_integers_without_fraction(&mut value);
        let spec = &value["spec"];
        let (group, plural) = (spec["group"].as_str(), spec["names"]["plural"].as_str());
        let name = format!("{}_{}.yaml", group.unwrap(), plural.unwrap());
        // The only scalar that an old YAML parser would not read as text.
        let text = serde_yaml_ng::to_string(&value)
            .unwrap()
            .replace(" 1970-01-01T00:00:00Z", " '1970-01-01T00:00:00Z'");
        (name, text)
    };
    crds::crds().into_iter().map(file).collect()
}

/// Writes bounds, which are floating-point numbers such as `1.0` in the types, as integers.
fn write_integers_without_fraction(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => {
            items.iter_mut().for_each(write_integers_without_fraction);
        }
        serde_json::Value::Object(map) => {
            map.values_mut().for_each(write_integers_without_fraction);
        }
        serde_json::Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e15) {
                *number = (float as i64).into();
            }
        }
        _ => {}
    }
}

#[test]
fn the_table_contains_the_default_reasons_of_schemas() {
    let text = fs::read_to_string("docs/REASONS.md").unwrap();
    for crd in crds::crds() {
        let crd = serde_json::to_value(&crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let conditions = &schema["status"]["default"]["conditions"];
        for condition in conditions.as_array().unwrap() {
            let row = format!("| `{}` |", condition["reason"].as_str().unwrap());
            assert!(text.contains(&row), "{row}");
        }
    }
}

/// The permissions that `check` requests are exactly those that are granted.
#[test]
fn the_checked_permissions_match_the_rbac_artifacts() {
    use std::collections::BTreeSet;
    use workload_operator::cli::check::{
        CLUSTER_PERMISSIONS, LEASE_PERMISSIONS, METRICS_PERMISSIONS, PERMISSIONS, Permission,
    };

    let flat = |permissions: &[Permission]| -> BTreeSet<[String; 3]> {
        let verbs =
            |permission: &Permission| permission.verbs.iter().map(|verb| (*verb).to_owned());
        let all = permissions.iter().flat_map(|permission| {
            verbs(permission)
                .map(|verb| [permission.group.to_owned(), permission.resource.to_owned(), verb])
        });
        all.collect()
    };
    let in_cluster = [PERMISSIONS, CLUSTER_PERMISSIONS].concat();
    for (kind, permissions) in [("ClusterRole", &*in_cluster), ("Role", LEASE_PERMISSIONS)] {
        assert_eq!(
            granted("operator.yaml", kind),
            flat(permissions),
            "{kind} in artifacts/rbac/operator.yaml"
        );
    }
    assert_eq!(granted("metrics.yaml", "ClusterRole"), flat(METRICS_PERMISSIONS));
}

/// Group, resource and verb of every rule of the `kind` in a file of artifacts/rbac.
fn granted(file: &str, kind: &str) -> std::collections::BTreeSet<[String; 3]> {
    use serde::Deserialize;
    let text = fs::read_to_string(format!("artifacts/rbac/{file}")).unwrap();
    let objects = serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde_json::Value::deserialize(document).unwrap());
    let words = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut all = std::collections::BTreeSet::new();
    for object in objects.filter(|object| object["kind"] == kind) {
        for rule in object["rules"].as_array().unwrap() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    for verb in words(&rule["verbs"]) {
                        all.insert([group.clone(), resource.clone(), verb]);
                    }
                }
            }
        }
    }
    all
}

#[test]
fn each_alert_has_its_runbook() {
    let runbooks = fs::read_to_string("docs/ALERTS.md").unwrap();
    let mut sections: Vec<_> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    let (critical, _) = runbooks.split_once("\n# Warning\n").unwrap();
    let mut alerts = Vec::new();
    for component in ["monitoring", "memcached-monitoring", "workload-monitoring"] {
        let file = format!("artifacts/components/{component}/prometheus-rule.yaml");
        let rules: serde_json::Value =
            serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        for group in rules["spec"]["groups"].as_array().unwrap() {
            for rule in group["rules"].as_array().unwrap() {
                let name = rule["alert"].as_str().unwrap().to_owned();
                let anchor = format!("docs/ALERTS.md#{}", name.to_lowercase());
                let url = rule["annotations"]["runbook_url"].as_str().unwrap();
                assert!(url.ends_with(&anchor), "{name}: {url}");
                let is_critical = critical.contains(&format!("\n## {name}\n"));
                assert_eq!(is_critical, rule["labels"]["severity"] == "critical", "{name}");
                alerts.push(name);
            }
        }
    }
    sections.sort();
    alerts.sort();
    assert_eq!(sections, alerts, "docs/ALERTS.md has a section for each alert, and no other");
}

#[test]
fn users_read_no_word_that_the_glossary_rejects() {
    let contributing = fs::read_to_string("CONTRIBUTING.md").unwrap();
    let (_, glossary) = contributing.split_once("| not | but |\n|---|---|\n").unwrap();
    let (glossary, _) = glossary.split_once("\n\n").unwrap();
    let rejected = glossary.lines().filter_map(|row| row.split('|').nth(1));
    let rejected: Vec<String> = rejected.flat_map(|words| words.split(',')).map(plain).collect();
    assert!(rejected.len() > 10, "{rejected:?}");

    let mut texts = vec![("--help".to_owned(), help(&mut Cli::command()))];
    for folder in ["docs", "artifacts", "crates/machinery", "template", "hack", "src", "examples"] {
        texts.extend(texts_below(Path::new(folder)));
    }
    for file in
        ["README.md", "RELEASING.md", "CHANGELOG.md", "SUPPORT.md", "Makefile", "Dockerfile"]
    {
        texts.push((file.to_owned(), fs::read_to_string(file).unwrap()));
    }
    let mut found = Vec::new();
    for (place, text) in texts {
        let text = plain(&text);
        let of_it = rejected.iter().filter(|word| text.contains(word.as_str()));
        found.extend(of_it.map(|word| format!("{place}: {}", word.trim())));
    }
    assert!(found.is_empty(), "CONTRIBUTING.md says what to write instead of {found:#?}");
}

/// Returns the words in lower case, with one space around each.
fn plain(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + &word.to_lowercase() + " ")
}

/// Returns what `--help` prints for a command and its subcommands.
fn help(command: &mut clap::Command) -> String {
    let mut text = command.render_long_help().to_string();
    for command in command.get_subcommands_mut() {
        text += &help(command);
    }
    text
}

/// Returns what people read of the files of a folder, with their paths: Markdown, YAML, scripts, and the texts in
/// programs.
fn texts_below(folder: &Path) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is = |end: &str| path.extension().is_some_and(|it| it == end);
        if path.is_dir() {
            texts.extend(texts_below(&path));
            continue;
        }
        let is_text = ["md", "yaml", "sh", "txt"].into_iter().any(is);
        let is_test = ["tests.rs", "fixtures.rs", "model.rs", "simulation.rs", "faults.rs"]
            .into_iter()
            .any(|name| path.ends_with(name))
            || path.components().any(|part| part.as_os_str() == "tests");
        if is_text || is("rs") && !is_test {
            let text = fs::read_to_string(&path).unwrap();
            let text = if is_text { text } else { literals(&text) };
            texts.push((path.display().to_string(), text));
        }
    }
    texts
}

/// Returns the string literals of a program, up to its tests.
fn literals(program: &str) -> String {
    let program = program.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = program.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("'\"'", "")
        .replace(r"\\", "")
        .replace("\\\"", "");
    code.split('"').skip(1).step_by(2).collect::<Vec<_>>().join("\n")
}
