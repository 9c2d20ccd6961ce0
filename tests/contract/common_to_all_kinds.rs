//! Promises of all kinds.

use serde_json::{Value, json};

use crate::audit::{Entry, operator_writes};
use crate::world::{
    APP, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, World, has_condition, is_ready,
};

/// A custom resource of one kind.
struct Sample {
    kind: Kind,
    /// Different for each kind: a Memcached and an App of the same name would need the same owned objects.
    name: &'static str,
    object: Value,
}

/// A custom resource of each kind.
fn one_of_each() -> [Sample; 3] {
    let sample = |kind, name, spec| {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        Sample { kind, name, object }
    };
    [
        sample(MEMCACHED, "cart", json!({"size": 1})),
        sample(GENERIC_DAEMON, "agent", json!({"image": "agent:1", "label": "logs"})),
        sample(APP, "shop", json!({"image": "shop:1", "ports": [{"port": 80}]})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_that_finds_nothing_to_change_writes_nothing() {
    let (world, operator) = World::with_operator_at("quiet", "baseline").await;
    for Sample { kind, name, object } in one_of_each() {
        world.create(kind, object).await.unwrap();
        world.until(kind, name, is_ready).await;
    }
    drop(operator);
    // Selected by time, because the API server logs a write after it becomes visible.
    let restarted = jiff::Timestamp::now();
    // A new operator reconciles every object once.
    let operator = world.start_operator().await;
    // An annotation on each object triggers one more reconcile over it.
    for Sample { kind, name, .. } in one_of_each() {
        let poke = json!({"metadata": {"annotations": {"poke": "1"}}});
        world.patch(kind, name, poke).await.unwrap();
    }
    // A new object of each kind is handled after everything that was queued before it.
    for Sample { kind, name, mut object } in one_of_each() {
        let fence = format!("fence-{name}");
        object["metadata"]["name"] = json!(fence);
        world.create(kind, object).await.unwrap();
        world.until(kind, &fence, is_ready).await;
    }
    drop(operator);
    let writes = operator_writes(&world);
    let since = |w: &&Entry| w.received > restarted && !w.name.starts_with("fence");
    let needless: Vec<_> = writes.iter().filter(since).collect();
    assert!(needless.is_empty(), "{needless:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn printer_columns_show_the_essential_state() {
    let (world, _operator) = World::with_operator_at("columns", "baseline").await;
    for Sample { kind, name, object } in one_of_each() {
        world.create(kind, object).await.unwrap();
        world.until(kind, name, is_ready).await;
    }
    let header = |arguments: &[&str]| {
        let table = world.kubectl(arguments).unwrap();
        table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(header(&["get", "mc"]), ["NAME", "SIZE", "READY", "AVAILABLE", "AGE"]);
    assert!(header(&["get", "memcached", "-o", "wide"]).contains(&"NODES".to_owned()));
    let apps = header(&["get", "apps.app.example.com"]);
    assert_eq!(apps, ["NAME", "REPLICAS", "READY", "AVAILABLE", "AGE"]);
    assert!(header(&["get", "gd", "-o", "wide"]).contains(&"IMAGE".to_owned()));
    let all = world.kubectl(&["get", "workloads", "-o", "name"]).unwrap();
    assert!(all.contains("memcached.cache.example.com/cart"), "{all}");
    assert!(all.contains("genericdaemon.mydomain.com/agent"), "{all}");
    assert!(all.contains("app.app.example.com/shop"), "{all}");
}

/// Line by line, without ages.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_what_the_documentation_shows() {
    let (world, _operator) = World::with_operator_at("documented", "baseline").await;
    let taken = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}});
    world.create(DEPLOYMENT, with_name(taken, "taken")).await.unwrap();
    world.create(MEMCACHED, with_name(json!({"spec": {}}), "taken")).await.unwrap();
    let stalled = |m: &Value| has_condition(m, "Stalled", "True");
    world.until(MEMCACHED, "taken", stalled).await;
    for sample in ["memcached", "syslog", "nginx-app"] {
        world.kubectl(&["apply", "-f", &format!("artifacts/examples/{sample}.yaml")]).unwrap();
    }
    for (kind, name) in
        [(MEMCACHED, "memcached-sample"), (GENERIC_DAEMON, "syslog"), (APP, "nginx-app")]
    {
        world.until(kind, name, is_ready).await;
    }
    let is_age =
        |word: &&str| word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
    let lines = |text: &str| -> Vec<String> {
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ageless = rows.map(|mut row| {
            row.pop_if(|last| is_age(last));
            row.join(" ")
        });
        ageless.filter(|line| !line.is_empty()).collect()
    };
    let text = std::fs::read_to_string("docs/CONCEPTS.md").unwrap();
    let mut compared = 0;
    for block in text.split("```console\n$ kubectl ").skip(1) {
        let (command, rest) = block.split_once('\n').unwrap();
        let (shown, _) = rest.split_once("```").unwrap();
        let words: Vec<String> = arguments_of(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let printed = world.kubectl(&words).unwrap_or_else(|refused| refused);
        for line in lines(shown) {
            let ours = lines(&printed);
            assert!(
                ours.contains(&line),
                "kubectl {command}: docs/CONCEPTS.md has\n{line}\nnot\n{printed}"
            );
        }
        compared += 1;
    }
    assert!(compared >= 5, "{compared} commands in docs/CONCEPTS.md");
}

fn with_name(mut object: Value, name: &str) -> Value {
    object["metadata"] = json!({"name": name});
    object
}

/// Returns the arguments of a command. Single quotes group words.
fn arguments_of(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in command.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("it has one from the start").push(letter),
        }
    }
    words
}
