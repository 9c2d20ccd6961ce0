//! Monitoring of the operator: a real Prometheus scrapes it and evaluates every expression of the dashboard
//! and the alerts, and the real promtool checks metrics and alerts.
//!
//! Both are in Debian's package `prometheus`. Without them, the tests that need them report what was not
//! checked, and pass.

mod expression;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::health::get;
use crate::http::{encoded, fetch};
use crate::operator_process::OperatorProcess;
use crate::packaging::start_operator;
use crate::unchecked::not_checked;
use crate::world::{APP, DEPLOYMENT, GENERIC_DAEMON, MAX_WAIT, MEMCACHED, World, is_ready};
use expression::{Selector, alerts, dashboard, names, selectors};

const COMPONENT: &str = "artifacts/components/monitoring";

/// Series that a healthy operator does not have, because they appear with their first increment.
const ONLY_AFTER_TROUBLE: &[&str] = &[
    // Requests that the API server fails or does not answer.
    r#"rest_client_requests_total{code=~"5..|<error>","#,
];

/// An operator that leads and has processed every kind, with a repeated Event.
async fn lived(namespace: &str) -> (World, OperatorProcess) {
    let world = World::new(namespace, "baseline").await;
    let operator = start_operator(&world).await;
    for (kind, spec) in [
        (MEMCACHED, json!({"size": 1})),
        (GENERIC_DAEMON, json!({"image": "a:1", "label": "logs"})),
        (APP, json!({"replicas": 1, "image": "a:1"})),
    ] {
        let name = kind.name().to_lowercase();
        let object = json!({"metadata": {"name": name}, "spec": spec});
        world.create(kind, object).await.unwrap();
        world.until(kind, &name, is_ready).await;
    }
    for replicas in [7, 8] {
        let scaled = json!({"spec": {"replicas": replicas}});
        world.patch(DEPLOYMENT, "memcached", scaled).await.unwrap();
        world.until(DEPLOYMENT, "memcached", |d| d["spec"]["replicas"] == 1).await;
    }
    (world, operator)
}

/// A program from Debian's package `prometheus`; `None`, with a message, if it is not there.
pub fn program(name: &str, unchecked: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|f| f.is_file());
    if found.is_none() {
        let why = format!(
            "there is no {name} on PATH. To install it on Debian or Ubuntu: apt-get install \
             --no-install-recommends prometheus"
        );
        not_checked(unchecked, &why);
    }
    found
}

/// Runs promtool; panics with its output if it finds a fault.
fn promtool(program: &Path, folder: &Path, arguments: &[&str], input: &str) {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {}: {said}", arguments.join(" "));
    assert!(said.is_empty() || said.contains("SUCCESS"), "promtool has a remark: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_serves_every_metric_of_dashboard_and_alerts() {
    let (_world, operator) = lived("monitored").await;
    let all: Vec<String> = dashboard().into_iter().chain(alerts()).collect();
    // `up`, which reports whether a scrape succeeded, is a metric of Prometheus, not of the operator.
    let mut wanted: BTreeSet<String> =
        all.iter().flat_map(|expression| names(expression)).collect();
    assert!(wanted.remove("up"));
    let metrics = until_served(&operator, &wanted).await;
    are_in_the_reference(&metrics);
    if let Some(program) = program("promtool", "the lint of the metrics") {
        promtool(&program, Path::new("."), &["check", "metrics"], &metrics);
    }
}

/// Each metric that is served has a row in docs/MONITORING.md; `UPDATE_ARTIFACTS=1` writes the rows.
fn are_in_the_reference(metrics: &str) {
    const FILE: &str = "docs/MONITORING.md";
    let mut rows = BTreeSet::new();
    for family in metrics.split("# HELP ").skip(1) {
        let (help, rest) = family.split_once('\n').unwrap();
        let (name, help) = help.split_once(' ').unwrap();
        let (kind, samples) = rest.split_once('\n').unwrap();
        let kind = kind.rsplit(' ').next().unwrap();
        let labels = labels(samples).join(", ");
        rows.insert(format!("| `{name}` | {kind} | {labels} | {help} |"));
    }
    let known = std::fs::read_to_string(FILE).unwrap();
    if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
        let head = known.lines().take_while(|line| !line.starts_with("| `"));
        let rows = rows.iter().map(String::as_str);
        let text: String = head.chain(rows).map(|line| format!("{line}\n")).collect();
        std::fs::write(FILE, text).unwrap();
        return;
    }
    let documented: BTreeSet<&str> = known.lines().filter(|line| line.starts_with("| `")).collect();
    let rows: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    let different: Vec<_> = rows.symmetric_difference(&documented).collect();
    assert!(different.is_empty(), "{FILE}: UPDATE_ARTIFACTS=1 writes it: {different:#?}");
}

/// The names of the labels of the first sample, without a histogram's own `le`.
fn labels(samples: &str) -> Vec<String> {
    let sample = samples.lines().next().and_then(|line| line.split_once('{'));
    let pairs = sample.map_or("", |(_, rest)| rest).split("\",");
    let names = pairs.filter_map(|pair| pair.split_once("=\""));
    names.map(|(name, _)| format!("`{name}`")).filter(|name| name != "`le`").collect()
}

/// Returns the metrics, once they include all these names. An Event is counted slightly later than the change
/// that it reports.
async fn until_served(operator: &OperatorProcess, wanted: &BTreeSet<String>) -> String {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let (code, metrics) = get(operator, "metrics", "/metrics").await;
        assert_eq!(code, 200);
        let samples = metrics.lines().filter(|line| !line.starts_with('#'));
        let served: BTreeSet<String> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
        let missing: Vec<_> = wanted.difference(&served).collect();
        if missing.is_empty() {
            return metrics;
        }
        assert!(Instant::now() < deadline, "asked for and not served: {missing:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn promtool_accepts_the_alerts_and_each_fires_when_it_should() {
    fire_when_they_should(COMPONENT, include_str!("monitoring/alerts.yaml"));
}

#[test]
fn promtool_accepts_the_alerts_on_memcached_and_each_fires_when_it_should() {
    let component = "artifacts/components/memcached-monitoring";
    fire_when_they_should(component, include_str!("monitoring/memcached-alerts.yaml"));
}

#[test]
fn promtool_accepts_the_alert_on_custom_resources_and_it_fires_when_it_should() {
    let component = "artifacts/components/workload-monitoring";
    fire_when_they_should(component, include_str!("monitoring/workload-alerts.yaml"));
}

fn fire_when_they_should(component: &str, cases: &str) {
    let rules = std::fs::read_to_string(format!("{component}/prometheus-rule.yaml")).unwrap();
    let mut rules: Value = serde_yaml_ng::from_str::<Value>(&rules).unwrap()["spec"].take();
    let Some(program) = program("promtool", "the syntax of the alerts, and when they fire") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("rules.yaml", &rules.to_string());
    promtool(&program, folder.path(), &["check", "rules", "rules.yaml"], "");
    for rule in rules["groups"][0]["rules"].as_array_mut().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        assert!(cases.contains(&format!("alertname: {name}\n    exp_alerts:")), "{name}: no case");
        // No description is asserted: it contains no numbers.
        rule["annotations"] = json!({"summary": rule["annotations"]["summary"]});
    }
    write("rules.yaml", &rules.to_string());
    write("alerts.yaml", cases);
    promtool(&program, folder.path(), &["test", "rules", "alerts.yaml"], "");
}

/// A Prometheus that scrapes one operator.
pub struct Prometheus {
    process: OperatorProcess,
    address: String,
    _folder: tempfile::TempDir,
}

// === impl Prometheus ===

impl Prometheus {
    /// Starts one with these entries of `scrape_configs`.
    pub async fn scraping(program: &Path, jobs: &[Value]) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        std::fs::write(&config, json!({"scrape_configs": jobs}).to_string()).unwrap();
        let mut command = tokio::process::Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0");
        let process = OperatorProcess::of(command);
        let line = process.logged("msg=\"Listening on\"").await;
        let (_, address) = line.split_once("address=").unwrap();
        let address = address.split_whitespace().next().unwrap().to_owned();
        Prometheus { process, address, _folder: folder }
    }

    /// The current result of an expression; `Err` says what is wrong with it.
    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let (_, body) = fetch(&self.address, &path, None).await;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().unwrap().clone()),
            _ => Err(answer["error"].to_string()),
        }
    }

    /// Polls until there is a result, because several scrapes can be necessary.
    pub async fn until_result(&self, expression: &str) {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            match self.query(expression).await {
                Ok(result) if !result.is_empty() => return,
                // It responds with 503 until it has started.
                other => assert!(
                    Instant::now() < deadline,
                    "{expression}: {other:?}\n{}",
                    self.process.lines().join("\n")
                ),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Substitutes the dashboard's variables as Grafana does.
fn filled_in(expression: &str) -> String {
    expression
        .replace("$__rate_interval", "1m")
        .replace("$job", "workload-operator")
        .replace("$namespace", ".*")
}

fn only_after_trouble(selector: &Selector) -> bool {
    ONLY_AFTER_TROUBLE.iter().any(|begin| selector.to_string().starts_with(begin))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_of_dashboard_and_alerts_has_data_in_prometheus() {
    let unchecked = "the expressions of dashboard and alerts against a real Prometheus";
    let Some(program) = program("prometheus", unchecked) else { return };
    let (world, operator) = lived("scraped").await;
    let line = operator.logged("Serving metrics on http://").await;
    let (_, target) = line.split_once("http://").unwrap();
    let job = json!({"job_name": "workload-operator", "scrape_interval": "1s",
        "static_configs": [{"targets": [target.trim()], "labels": {"namespace": world.namespace}}]});
    let prometheus = Prometheus::scraping(&program, &[job]).await;
    for expression in alerts() {
        for selector in selectors(&expression).iter().filter(|s| !only_after_trouble(s)) {
            prometheus.until_result(&selector.to_string()).await;
        }
        prometheus.query(&expression).await.unwrap_or_else(|e| panic!("{expression}: {e}"));
    }
    for expression in dashboard() {
        prometheus.until_result(&filled_in(&expression)).await;
    }
    assert!(prometheus.query("no such thing").await.is_err());
}
