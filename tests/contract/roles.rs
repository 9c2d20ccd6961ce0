//! The ClusterRoles for users: an editor and a viewer of each kind.

use serde_json::{Value, json};

use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED, World, memcached};

/// The subresources of a kind, as the API server lists them.
fn subresources(world: &World, kind: Kind) -> Vec<String> {
    let path = format!("/apis/{}", kind.api_version());
    let all: Value =
        serde_json::from_str(&world.kubectl(&["get", "--raw", &path]).unwrap()).unwrap();
    let names = all["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap());
    let start = format!("{}/", kind.plural());
    names.filter_map(|name| name.strip_prefix(&start)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn editors_and_viewers_have_permissions_for_every_subresource() {
    let world = World::new("roles", "baseline").await;
    let app = json!({"metadata": {"name": "app"}, "spec": {"image": "a:1"}});
    let daemon = json!({"metadata": {"name": "genericdaemon"}, "spec": {"image": "a:1"}});
    world.create(MEMCACHED, memcached("memcached", 1)).await.unwrap();
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    world.create(APP, app).await.unwrap();
    let mut seen = Vec::new();
    for kind in [MEMCACHED, GENERIC_DAEMON, APP] {
        let singular = kind.name().to_lowercase();
        for role in ["viewer", "editor"] {
            let user = format!("{singular}-{role}");
            let role = format!("--clusterrole=workload-operator-{user}");
            let binding = ["create", "rolebinding", &user, &role, &format!("--user={user}")];
            world.kubectl(&binding).unwrap();
        }
        let path = format!("{}/{singular}", kind.path(&world.namespace));
        for subresource in subresources(&world, kind) {
            seen.push(format!("{singular}/{subresource}"));
            for role in ["viewer", "editor"] {
                let user = format!("--as={singular}-{role}");
                let read =
                    world.kubectl(&[&user, "get", "--raw", &format!("{path}/{subresource}")]);
                assert!(read.is_ok(), "{role} of {singular}/{subresource}: {read:?}");
            }
        }
        if seen.contains(&format!("{singular}/scale")) {
            let scale = |role: &str| {
                let user = format!("--as={singular}-{role}");
                let what = format!("{}.{}/{singular}", kind.plural(), kind.group());
                world.kubectl(&[&user, "scale", &what, "--replicas=2"])
            };
            assert!(scale("editor").is_ok(), "{:?}", scale("editor"));
            assert!(scale("viewer").unwrap_err().contains("Forbidden"));
        }
    }
    // A subresource that the API server does not serve would not be tested.
    for expected in ["memcached/scale", "memcached/status", "genericdaemon/status", "app/scale"] {
        assert!(seen.iter().any(|found| found == expected), "{seen:?}");
    }
}
