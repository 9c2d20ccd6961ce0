//! An idle operator does nothing.

use std::time::Duration;

use serde_json::json;

use crate::world::{APP, GENERIC_DAEMON, MEMCACHED, World, is_ready};

/// Longer than any of the operator's intervals, and within the time limit of a run.
const WATCHED: Duration = Duration::from_secs(3000);

/// Nodes are not watched, so those of a daemon with a label are listed now and then.
#[tokio::test(start_paused = true)]
async fn without_changes_nothing_is_written_or_listed() {
    let world = World::new();
    let test = async {
        let ports = json!([{"port": 80}]);
        let daemon = json!({"image": "agent:1"});
        let labelled = json!({"image": "agent:1", "label": "logs"});
        let objects = [
            (MEMCACHED, "cart", json!({"size": 2})),
            (APP, "shop", json!({"image": "shop:1", "replicas": 2, "ports": ports})),
            (GENERIC_DAEMON, "agent", daemon),
            (GENERIC_DAEMON, "logs", labelled),
        ];
        for (kind, name, spec) in &objects {
            world.create(*kind, json!({"metadata": {"name": name}, "spec": spec}));
        }
        for (kind, name, _) in &objects {
            world.until(*kind, name, is_ready).await;
        }
        world.server.settled(Duration::from_secs(60)).await;
        let before = world.server.requests().len();
        tokio::time::sleep(WATCHED).await;
        world.server.requests().split_off(before)
    };
    let requests = world.run(test).await;
    let is_of_nodes = |uri: &str| uri.starts_with("/api/v1/nodes");
    let others: Vec<_> = requests
        .iter()
        .filter(|request| request.verb != "watch" && !is_of_nodes(&request.uri))
        .collect();
    assert!(others.is_empty(), "{} of {}: {:#?}", others.len(), requests.len(), others.first());
    let lists = requests.iter().filter(|request| is_of_nodes(&request.uri)).count();
    assert!((1..=60).contains(&lists), "{lists} lists of nodes");
}
