//! Every version of Kubernetes that the documents name.
//!
//! All other tests run on the newest version. Here a fixed part of the contract runs on the newest, on the
//! oldest if its servers are built, and with `KUBERNETES_VERSIONS=all` on each version that
//! hack/controlplane.sh can start (`KUBERNETES_VERSIONS=1.35` runs only that one). The results must match the
//! table in docs/INSTALL.md; `UPDATE_VERSIONS=1` writes its rows instead.

use serde_json::{Value, json};

use crate::audit::logged;
use crate::check::Cluster;
use crate::control_plane::ControlPlane;
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE, World, is_ready,
};

const TABLE: &str = "docs/INSTALL.md";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn the_contract_holds_on_every_documented_version() {
    let all = ControlPlane::versions();
    let wanted = std::env::var("KUBERNETES_VERSIONS").unwrap_or_default();
    let run: Vec<String> = match wanted.as_str() {
        "all" => all,
        "" => {
            let (oldest, newest) = (all.first().unwrap(), all.last().unwrap());
            let unchecked = format!("the contract on Kubernetes {oldest}");
            let oldest = Some(oldest).filter(|oldest| ControlPlane::is_built(oldest, &unchecked));
            oldest.into_iter().chain([newest]).cloned().collect()
        }
        some => some.split(',').map(str::to_owned).collect(),
    };
    for version in run {
        println!("Kubernetes {version}");
        let row = holds_on(version.clone()).await;
        is_or_becomes(&version, &row);
    }
}

/// Runs these tests. Returns the version's row of the table.
async fn holds_on(version: String) -> String {
    let started = version.clone();
    let plane = ControlPlane::of_this_test(move || ControlPlane::of_version(&started)).await;
    let server = plane.kubectl(&["get", "--raw", "/version"]);
    let server: Value = serde_json::from_str(&server).unwrap();
    let server = server["gitVersion"].as_str().unwrap();
    assert!(server.starts_with(&format!("v{version}.")), "{server} is no {version}");
    installation_is_checked(plane).await;
    let world = World::on(plane, "slice", "baseline").await;
    let operator = world.start_operator().await;
    bad_input_is_refused(&world).await;
    bad_settings_of_containers_are_refused(&world).await;
    only_who_may_create_daemon_sets_may_create_generic_daemons(&world).await;
    a_map_can_be_emptied(&world);
    an_editor_gains_no_rights_of_others(&world).await;
    an_editor_cannot_use_templates(&world).await;
    zero_values_need_no_permission(&world);
    an_editor_gets_no_other_program_into_an_app_with_rights(&world).await;
    every_field_of_an_app_can_be_guarded(&world).await;
    the_operators_account_may_write_only_children(&world).await;
    memcached(&world).await;
    app(&world).await;
    generic_daemon(&world).await;
    let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
    if minor < 36 {
        a_field_of_a_newer_kubernetes_is_reported(&world).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
    format!("| {version} | {server} |")
}

async fn installation_is_checked(plane: &'static ControlPlane) {
    let cluster = Cluster::on(plane).await;
    cluster.until_trips(false, &[], 0).await;
    cluster.until_trips(true, &[], 0).await;
}

async fn bad_input_is_refused(world: &World) {
    let app = |field: &str, value: Value| json!({"image": "shop:1", field: value});
    let target = |target: Value| app("ports", json!([{"port": 80, "targetPort": target}]));
    let limits = |limits: Value| app("resources", json!({"limits": limits}));
    let dns = json!([{"name": "a", "port": 53, "targetPort": "dns"},
        {"name": "b", "port": 53, "targetPort": "dns", "protocol": "UDP"}]);
    for (kind, spec, message) in [
        (APP, app("ports", dns), "must not have the same name as `targetPort`"),
        (MEMCACHED, json!({"size": 4, "memory": "8Mi"}), "less than or equal to 3"),
        (MEMCACHED, json!({"maxConnections": 511}), "at least 512"),
        (GENERIC_DAEMON, json!({"image": "a:1", "label": "a b"}), "'key' or 'key=value'"),
        (APP, json!({"image": "shop: 1"}), "'nginx:1.27'"),
        (APP, limits(json!({"cpu": "1x"})), "spec.resources.limits.cpu"),
        (APP, app("readinessProbe", json!({"httpGet": {"path": "/"}})), "httpGet.port: Required"),
        (APP, app("envs", json!([{"value": "a"}])), "spec.envs[0].name: Required"),
        (APP, target(json!(65536)), "less than or equal to 65535"),
        (APP, target(json!("Web")), "[a-z0-9]"),
        (APP, target(json!("a".repeat(16))), "15"),
    ] {
        let object = json!({"metadata": {"name": "bad"}, "spec": spec});
        let refused = world.dry_run(kind, object).await;
        let refused = refused.expect_err(&format!("{spec} is accepted"));
        assert!(refused.contains(message), "{spec}: {refused}");
    }
    for spec in [
        target(json!("web-1")),
        target(json!(0)),
        target(json!("")),
        app(
            "ports",
            json!([{"port": 80, "nodePort": 0, "name": "", "appProtocol": ""},
            {"port": 81, "nodePort": 0, "name": "", "targetPort": ""}]),
        ),
        limits(json!({"cpu": 1, "memory": "0.5Gi", "example.com/gpu": "2"})),
    ] {
        let object = json!({"metadata": {"name": "good"}, "spec": spec});
        world.dry_run(APP, object).await.unwrap_or_else(|refused| panic!("{spec}: {refused}"));
    }
}

/// Invalid settings of the fields for production use.
async fn bad_settings_of_containers_are_refused(world: &World) {
    for (kind, spec, message) in [
        (
            MEMCACHED,
            json!({"memory": "1Gi", "resources": {"limits": {"memory": "1292Mi"}}}),
            "1.2 times `memory`",
        ),
        (MEMCACHED, json!({"resources": {"limits": {"memory": 67_108_864}}}), "1.2 times `memory`"),
        (MEMCACHED, json!({"maxItemSize": "33Mi"}), "at most half of `memory`"),
        (MEMCACHED, json!({"options": ["ssl_key=/a"]}), "'ssl_', 'ext_'"),
        (MEMCACHED, json!({"options": ["slab_chunk_max=512k"]}), "'idle_timeout=600'"),
        (MEMCACHED, json!({"options": ["lru_crawlr"]}), "'idle_timeout=600'"),
        (
            MEMCACHED,
            json!({"options": ["no_modern", "temporary_ttl=61"]}),
            "must not have 'temporary_ttl'",
        ),
        (MEMCACHED, json!({"exporter": {}, "containerPort": 9150}), "must not be 9150"),
        (MEMCACHED, json!({"exporter": {"image": "a b"}}), "without white space"),
        (MEMCACHED, json!({"readinessProbe": "HTTP"}), "\"TCP\", \"None\""),
    ] {
        is_refused(world, kind, spec, message).await;
    }
}

async fn is_refused(world: &World, kind: Kind, spec: Value, message: &str) {
    let object = json!({"metadata": {"name": "bad"}, "spec": spec});
    let refused = world.dry_run(kind, object).await;
    let refused = refused.expect_err(&format!("{spec} is accepted"));
    assert!(refused.contains(message), "{spec}: {refused}");
}

/// The ValidatingAdmissionPolicy enforces this shortly after its installation.
async fn only_who_may_create_daemon_sets_may_create_generic_daemons(world: &World) {
    let editor = "--clusterrole=workload-operator-genericdaemon-editor";
    world.kubectl(&["create", "rolebinding", "eve", editor, "--user=eve"]).unwrap();
    for file in ["artifacts/examples/syslog.yaml", "artifacts/examples/node-exporter.yaml"] {
        let create = ["create", "--as=eve", "--dry-run=server", "-f", file];
        let refused = logged(|| world.kubectl(&create).err()).await;
        assert!(refused.contains("eve cannot create daemonsets.apps"), "{refused}");
    }
}

/// The policies of artifacts/policy enforce this for users who can edit a kind and cannot create Deployments.
async fn an_editor_gains_no_rights_of_others(world: &World) {
    for kind in ["memcached", "app"] {
        let role = format!("--clusterrole=workload-operator-{kind}-editor");
        let binding =
            ["create", "rolebinding", &format!("mallory-{kind}"), &role, "--user=mallory"];
        world.kubectl(&binding).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let dry_run = |verb: &str, object: &Value, user: Option<&str>| {
        std::fs::write(file.path(), object.to_string()).unwrap();
        let all = [verb, "--dry-run=server", "-f", file.path().to_str().unwrap()];
        let all = user.into_iter().chain(all).collect::<Vec<_>>();
        unless_conflicting(|| world.kubectl(&all))
    };
    let (memcached, app) =
        (("cache.example.com/v1alpha1", "Memcached"), ("app.example.com/v1", "App"));
    let object = |(api_version, kind): (&str, &str), spec: &Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "mallory"}, "spec": spec});
    let mallory = Some("--as=mallory");
    let guarded = [
        (memcached, json!({"image": "evil:1"})),
        (memcached, json!({"exporter": {"image": "evil:1"}})),
    ];
    for (kind, spec) in &guarded {
        let object = object(*kind, spec);
        let refused = logged(|| dry_run("create", &object, mallory).err()).await;
        assert!(refused.contains("mallory cannot create deployments.apps"), "{refused}");
        dry_run("create", &object, None).unwrap_or_else(|error| panic!("with the right: {error}"));
    }
    // All other changes are allowed, even for an object with such a field, but the field must not change.
    for (kind, free) in
        [(memcached, json!({"memory": "128Mi"})), (app, json!({"image": "b", "replicas": 2}))]
    {
        dry_run("create", &object(kind, &free), mallory).unwrap();
    }
    let mut spec = json!({"image": "ours:1", "size": 1});
    let create = |spec: &Value| {
        std::fs::write(file.path(), object(memcached, spec).to_string()).unwrap();
        world.kubectl(&["create", "-f", file.path().to_str().unwrap()]).unwrap();
    };
    create(&spec);
    spec["size"] = json!(2);
    dry_run("replace", &object(memcached, &spec), mallory).unwrap();
    let without = json!({"size": 1});
    assert!(dry_run("replace", &object(memcached, &without), mallory).is_err(), "left out");
    world.kubectl(&["delete", "memcached", "mallory"]).unwrap();
}

/// A template, and an object that has one, belongs to those who may create its Deployment or Service.
async fn an_editor_cannot_use_templates(world: &World) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubectl = |options: &[&str], (api_version, kind): (&str, &str), spec: &Value| {
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "templated"}, "spec": spec});
        std::fs::write(file.path(), object.to_string()).unwrap();
        let all = [options, &["-f", file.path().to_str().unwrap()]].concat();
        unless_conflicting(|| world.kubectl(&all))
    };
    let create = ["create", "--as=mallory", "--dry-run=server"];
    let replace = ["replace", "--as=mallory", "--dry-run=server"];
    for (kind, minimal, count) in [
        (("app.example.com/v1", "App"), json!({"image": "a"}), "replicas"),
        (("cache.example.com/v1alpha1", "Memcached"), json!({}), "size"),
    ] {
        let with = |field: &str, value: Value| {
            let mut spec = minimal.clone();
            spec[field] = value;
            spec
        };
        for (field, template, resource) in [
            ("podTemplate", json!({"spec": {"hostNetwork": true}}), "deployments.apps"),
            // 0 and false are values, which can make a pod less restricted.
            ("podTemplate", json!({"spec": {"hostUsers": false}}), "deployments.apps"),
            (
                "podTemplate",
                json!({"spec": {"securityContext": {"runAsUser": 0}}}),
                "deployments.apps",
            ),
            ("podTemplate", json!({"metadata": {"labels": {"a": "b"}}}), "deployments.apps"),
            ("serviceTemplate", json!({"spec": {"type": "NodePort"}}), "services"),
        ] {
            let spec = with(field, template);
            let refused = logged(|| kubectl(&create, kind, &spec).err()).await;
            assert!(refused.contains(&format!("mallory cannot create {resource}")), "{refused}");
            kubectl(&["create"], kind, &spec).unwrap();
            let mut scaled = spec.clone();
            scaled[count] = json!(2);
            kubectl(&replace, kind, &scaled).unwrap();
            let mut other = spec.clone();
            other["minReadySeconds"] = json!(1);
            for other in [&other, &minimal] {
                let refused = kubectl(&replace, kind, other).unwrap_err();
                assert!(
                    refused.contains(&format!("mallory cannot create {resource}")),
                    "{refused}"
                );
            }
            let apply = ["apply", "--server-side", "--as=mallory", "--dry-run=server"];
            let refused = kubectl(&apply, kind, &with("minReadySeconds", json!(2))).unwrap_err();
            assert!(refused.contains("cannot create") || refused.contains("conflict"), "{refused}");
            kubectl(&["delete"], kind, &spec).unwrap();
        }
    }
    subresources_change_no_spec(world);
}

/// A user who can write the scale and the status of an App changes nothing else of it by them.
fn subresources_change_no_spec(world: &World) {
    let rules = ["create", "role", "writer", "--verb=get,patch,update"];
    let resources = "--resource=apps.app.example.com/status,apps.app.example.com/scale";
    world.kubectl(&[&rules[..], &[resources]].concat()).unwrap();
    world.kubectl(&["create", "rolebinding", "writer", "--role=writer", "--user=trudy"]).unwrap();
    let template = json!({"spec": {"hostNetwork": true}});
    let object = json!({"apiVersion": "app.example.com/v1", "kind": "App", "metadata": {"name": "sub"},
        "spec": {"image": "a", "podTemplate": template}});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    world.kubectl(&["create", "-f", file.path().to_str().unwrap()]).unwrap();
    let spec = ["get", "apps.app.example.com", "sub", "-o=jsonpath={.spec}"];
    let before: Value = serde_json::from_str(&world.kubectl(&spec).unwrap()).unwrap();
    let change =
        json!({"spec": {"image": "b", "podTemplate": {"spec": {"hostPID": true}}}}).to_string();
    let patch =
        ["patch", "--as=trudy", "apps.app.example.com", "sub", "--type=merge", "-p", &change];
    world.kubectl(&[&patch[..], &["--subresource=status"]].concat()).unwrap();
    // The scale has no such fields.
    let _ = world.kubectl(&[&patch[..], &["--subresource=scale"]].concat());
    assert!(world.kubectl(&patch).unwrap_err().contains("forbidden"));
    let after: Value = serde_json::from_str(&world.kubectl(&spec).unwrap()).unwrap();
    assert_eq!(before, after);
    world.kubectl(&["delete", "apps.app.example.com", "sub"]).unwrap();
}

/// A field with a zero value, as templates and Go clients write it, is the same as an absent field.
fn zero_values_need_no_permission(world: &World) {
    let empty = json!({"metadata": {"creationTimestamp": null, "labels": {}},
        "spec": {"volumes": [], "priorityClassName": "", "affinity": null, "containers": null}});
    let zero = json!({"image": "b", "podTemplate": empty, "serviceTemplate": null,
        "ports": [{"port": 80, "nodePort": 0}]});
    for (api_version, kind, spec) in [
        ("app.example.com/v1", "App", zero),
        (
            "cache.example.com/v1alpha1",
            "Memcached",
            json!({"image": "", "podTemplate": {"spec": null}, "serviceTemplate": {}}),
        ),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "zero"},
            "spec": spec});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        world.kubectl(&["--as=mallory", "create", "--dry-run=server", "-f", path]).unwrap();
    }
}

/// An object or map that is emptied by a server-side apply becomes empty, and is the same as an absent one.
fn a_map_can_be_emptied(world: &World) {
    let budget = |it: Value| json!({"podDisruptionBudget": it});
    let limits = || json!({"resources": {"limits": {"memory": "1Gi"}}});
    let exporter =
        || json!({"exporter": {"image": "exporter:1", "resources": {"limits": {"cpu": "1"}}}});
    let pods = |pod: Value| json!({"podTemplate": {"spec": pod}});
    let rolling = || json!({"strategy": {"rollingUpdate": {"maxSurge": 1}}});
    let (app, cache) = (("app.example.com/v1", "App"), ("cache.example.com/v1alpha1", "Memcached"));
    let daemon = ("mydomain.com/v1beta1", "GenericDaemon");
    for (kind, first, then) in [
        (app, limits(), json!({"resources": {}})),
        (app, limits(), json!({"resources": {"limits": {}}})),
        (app, budget(json!({"maxUnavailable": 1})), budget(json!({}))),
        (app, rolling(), json!({"strategy": {"rollingUpdate": {}}})),
        (app, rolling(), json!({"strategy": {}})),
        (cache, exporter(), json!({"exporter": {}})),
        (cache, exporter(), json!({"exporter": {"resources": {"limits": {}}}})),
        (cache, limits(), json!({"resources": {}})),
        (cache, budget(json!({"maxUnavailable": 1})), budget(json!({}))),
        (app, pods(json!({"nodeSelector": {"a": "b"}})), pods(json!({"nodeSelector": {}}))),
        (
            app,
            pods(json!({"containers": [{"name": "a", "image": "a"}]})),
            pods(json!({"containers": []})),
        ),
        (app, pods(json!({"securityContext": {"runAsUser": 1}})), pods(json!({}))),
        (daemon, pods(json!({"hostNetwork": true})), json!({"podTemplate": {}})),
        (daemon, json!({"envs": [{"name": "A", "value": "a"}]}), json!({"envs": []})),
        (daemon, limits(), json!({"resources": {}})),
    ] {
        emptied(world, kind, [first, then]);
    }
}

fn emptied(world: &World, (api_version, kind): (&str, &str), specs: [Value; 2]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for mut spec in specs {
        if kind != "Memcached" {
            spec["image"] = json!("nginx:1");
        }
        let paused = json!({"workload-operator.example.com/paused": "true"});
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "emptied", "annotations": paused}, "spec": spec});
        std::fs::write(file.path(), object.to_string()).unwrap();
        let apply = ["apply", "--server-side", "-f", path];
        world.kubectl(&apply).unwrap_or_else(|refusal| panic!("{object}: {refusal}"));
    }
    world.kubectl(&["delete", "-f", path]).unwrap();
}

/// An editor can set the fields that docs/SECURITY.md lists, until the administrator protects all of the
/// spec.
async fn every_field_of_an_app_can_be_guarded(world: &World) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let create = |spec: &Value| {
        let object = json!({"apiVersion": "app.example.com/v1", "kind": "App",
            "metadata": {"name": "mallory"}, "spec": spec});
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        world.kubectl(&["--as=mallory", "create", "--dry-run=server", "-f", path])
    };
    let key = json!({"secretKeyRef": {"name": "passwords", "key": "admin"}});
    let specs = [
        json!({"image": "a", "envs": [{"name": "PASSWORD", "valueFrom": key}]}),
        json!({"image": "a", "ports": [{"name": "http", "port": 80}]}),
    ];
    for spec in &specs {
        create(spec).unwrap();
    }
    let port = json!({"image": "a", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]});
    let refused = logged(|| create(&port).err()).await;
    assert!(refused.contains("mallory cannot create services"), "{refused}");
    let guard = |condition: &str| {
        let value =
            json!([{"op": "replace", "path": "/spec/variables/0/expression", "value": condition}]);
        let policy = ["patch", "validatingadmissionpolicy", "workload-operator-app"];
        let patch = ["--type=json".to_owned(), format!("-p={value}")];
        world.plane().kubectl(&[&policy[..], &[patch[0].as_str(), patch[1].as_str()]].concat());
    };
    let policy = ["get", "validatingadmissionpolicy", "workload-operator-app"];
    let condition = "-o=jsonpath={.spec.variables[0].expression}";
    let before = world.plane().kubectl(&[&policy[..], &[condition]].concat());
    guard("true");
    for spec in &specs {
        let refused = logged(|| create(spec).err()).await;
        assert!(refused.contains("cannot create deployments.apps"), "{refused}");
    }
    guard(&before);
}

/// `kubectl replace` sends the version that it has read, so a status write in between is a conflict.
fn unless_conflicting(mut call: impl FnMut() -> Result<String, String>) -> Result<String, String> {
    let mut answer = call();
    for _ in 0..100 {
        match &answer {
            Err(error) if error.contains("the object has been modified") => answer = call(),
            _ => break,
        }
    }
    answer
}

/// Another program cannot use the ServiceAccount that an authorized user has set on an App.
async fn an_editor_gets_no_other_program_into_an_app_with_rights(world: &World) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubectl = |verb: &str, spec: &Value, options: &[&str]| {
        let object = json!({"apiVersion": "app.example.com/v1", "kind": "App",
            "metadata": {"name": "mallory"}, "spec": spec});
        std::fs::write(file.path(), object.to_string()).unwrap();
        let all = [&[verb, "-f", file.path().to_str().unwrap()], options].concat();
        unless_conflicting(|| world.kubectl(&all))
    };
    let account = json!({"spec": {"serviceAccountName": "default"}});
    let mut spec = json!({"image": "ours:1", "podTemplate": account});
    kubectl("create", &spec, &[]).unwrap();
    for (field, value) in [("image", json!("evil:1")), ("command", json!(["sh"]))] {
        let before = spec[field].take();
        spec[field] = value;
        let refused = kubectl("replace", &spec, &["--as=mallory", "--dry-run=server"]).unwrap_err();
        assert!(refused.contains("cannot create deployments.apps"), "{field}: {refused}");
        spec[field] = before;
        if spec[field].is_null() {
            spec.as_object_mut().unwrap().remove(field);
        }
    }
    world
        .kubectl(&["--as=mallory", "scale", "app.app.example.com/mallory", "--replicas=2"])
        .unwrap();
    world.kubectl(&["delete", "app.app.example.com", "mallory"]).unwrap();
}

/// The policy of artifacts/policy/operator.yaml enforces this for every client with the account's token.
async fn the_operators_account_may_write_only_children(world: &World) {
    const ACCOUNT: &str = "system:serviceaccount:workload-operator-system:workload-operator";
    let (account, user) = (format!("--as={ACCOUNT}"), format!("--user={ACCOUNT}"));
    world.kubectl(&["create", "rolebinding", "account", "--clusterrole=edit", &user]).unwrap();
    let image = "--image=nginx";
    let create = |name| world.kubectl(&[&account, "create", "deployment", name, image]);
    let refused = logged(|| create("foreign").err()).await;
    assert!(refused.contains("can only write objects that a Memcached"), "{refused}");

    // An owner can be neither added nor removed: owners are compared before and after.
    let object = json!({"metadata": {"name": "a"}, "spec": {"size": 0}});
    // An existing owner, because the garbage collector deletes objects of a missing one.
    let uid = world.create(MEMCACHED, object).await.unwrap()["metadata"]["uid"].clone();
    let owner = |kind: &str| {
        let owner = json!({"apiVersion": "cache.example.com/v1alpha1", "kind": kind, "name": "a",
            "uid": uid, "controller": true});
        json!({"metadata": {"ownerReferences": [owner]}}).to_string()
    };
    let nobody = r#"{"metadata":{"ownerReferences":null}}"#.to_owned();
    let patch = |name: &str, patch: &str, user: Option<&str>| {
        let all = ["patch", "deployment", name, "--type=merge", "-p", patch, "--dry-run=server"];
        world.kubectl(&user.into_iter().chain(all).collect::<Vec<_>>())
    };
    world.kubectl(&["create", "deployment", "foreign", image]).unwrap();
    let account = Some(account.as_str());
    assert!(patch("foreign", &owner("Memcached"), account).is_err(), "taken over");
    let annotation = r#"{"metadata":{"annotations":{"a":"b"}}}"#;
    assert!(patch("foreign", annotation, account).is_err(), "changed");
    assert!(patch("foreign", annotation, None).is_ok(), "of no other account");
    world
        .kubectl(&["patch", "deployment", "foreign", "--type=merge", "-p", &owner("Memcached")])
        .unwrap();
    assert!(patch("foreign", annotation, account).is_ok(), "a child");
    assert!(patch("foreign", &nobody, account).is_err(), "given up");
    assert!(patch("foreign", &owner("Backup"), account).is_err(), "given to another");
    only_a_child_without_an_owner_is_adopted(world, &owner("Memcached"), account);
    world.delete(MEMCACHED, "a").await;
    world.until_gone(MEMCACHED, "a").await;
}

/// The operator's account gives a Deployment `foreign` this owner.
fn only_a_child_without_an_owner_is_adopted(world: &World, owner: &str, account: Option<&str>) {
    let kubectl = |all: &[&str]| world.kubectl(all).unwrap();
    let adopt = || {
        let all =
            ["patch", "deployment", "foreign", "--type=merge", "--dry-run=server", "-p", owner];
        world.kubectl(&account.into_iter().chain(all).collect::<Vec<_>>())
    };
    let foreign = |verb: &str, what: &str| kubectl(&[verb, "deployment", "foreign", what]);
    let disown = r#"{"metadata":{"ownerReferences":null}}"#;
    kubectl(&["patch", "deployment", "foreign", "--type=merge", "-p", disown]);
    foreign("annotate", "workload-operator.example.com/applied=x");
    assert!(adopt().is_err(), "without the label");
    foreign("label", "app.kubernetes.io/managed-by=workload-operator");
    adopt().expect("it has the record and the label");
    let annotate = ["annotate", "--dry-run=server", "deployment", "foreign", "a=b"];
    let delete = ["delete", "--dry-run=server", "deployment", "foreign"];
    for other in [&annotate[..], &delete[..]] {
        let all: Vec<_> = account.into_iter().chain(other.iter().copied()).collect();
        assert!(world.kubectl(&all).is_err(), "{other:?} gives it no owner");
    }
    let job = r#"{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"a",
        "uid":"00000000-0000-4000-8000-000000000001","controller":true}]}}"#;
    let take = ["patch", "deployment", "foreign", "--type=merge", "--dry-run=server", "-p", job];
    assert!(world.kubectl(&account.into_iter().chain(take).collect::<Vec<_>>()).is_err());
    foreign("annotate", "workload-operator.example.com/applied-");
    assert!(adopt().is_err(), "without the record");
}

async fn memcached(world: &World) {
    let name = sample(world, MEMCACHED).await;
    let deployment = of(world, DEPLOYMENT, &name).await;
    assert_eq!(deployment["spec"]["replicas"], 2);
    changed(world, (MEMCACHED, &name), json!({"spec": {"containerPort": 11212}})).await;
    scaled(world, MEMCACHED, &name, 3).await;
    restored(world, (MEMCACHED, &name), DEPLOYMENT).await;
    restored(world, (MEMCACHED, &name), SERVICE).await;
    deleted(world, (MEMCACHED, &name), &[DEPLOYMENT, SERVICE]).await;
}

async fn app(world: &World) {
    let name = sample(world, APP).await;
    changed(world, (APP, &name), json!({"spec": {"image": "nginx:1.27"}})).await;
    let deployment = of(world, DEPLOYMENT, &name).await;
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.27");
    scaled(world, APP, &name, 3).await;
    restored(world, (APP, &name), DEPLOYMENT).await;
    restored(world, (APP, &name), SERVICE).await;
    deleted(world, (APP, &name), &[DEPLOYMENT, SERVICE]).await;
}

async fn generic_daemon(world: &World) {
    let name = sample(world, GENERIC_DAEMON).await;
    let ready = world.until(GENERIC_DAEMON, &name, is_ready).await;
    assert_eq!(ready["status"]["installed"], 2, "the nodes with the label logs");
    changed(world, (GENERIC_DAEMON, &name), json!({"spec": {"label": "disk=ssd"}})).await;
    world.until(GENERIC_DAEMON, &name, |d| is_ready(d) && d["status"]["installed"] == 1).await;
    restored(world, (GENERIC_DAEMON, &name), DAEMON_SET).await;
    deleted(world, (GENERIC_DAEMON, &name), &[DAEMON_SET]).await;
}

/// `schedulingGroup` came with Kubernetes 1.36.
async fn a_field_of_a_newer_kubernetes_is_reported(world: &World) {
    let object = json!({"metadata": {"name": "newer"}, "spec": {"image": "nginx:1.27",
        "podTemplate": {"spec": {"schedulingGroup": {"podGroupName": "a"}}}}});
    world.create(APP, object).await.unwrap();
    let message = world.until_condition(APP, "newer", "Stalled", ("True", "Invalid")).await;
    assert!(message.contains("schedulingGroup"), "{message}");
    let without = json!({"spec": {"podTemplate": null}});
    changed(world, (APP, "newer"), without).await;
    deleted(world, (APP, "newer"), &[DEPLOYMENT]).await;
}

/// Creates the kind's sample and waits until it is Ready; returns its name.
async fn sample(world: &World, kind: Kind) -> String {
    let file = match kind {
        MEMCACHED => "memcached",
        APP => "nginx-app",
        _ => "syslog",
    };
    let text = std::fs::read_to_string(format!("artifacts/examples/{file}.yaml")).unwrap();
    let object: Value = serde_yaml_ng::from_str(&text).unwrap();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    world.create(kind, object).await.unwrap();
    world.until(kind, &name, is_ready).await;
    name
}

async fn of(world: &World, child: Kind, name: &str) -> Value {
    world.get(child, name).await.unwrap_or_else(|| panic!("no {} {name}", child.name()))
}

async fn changed(world: &World, (kind, name): (Kind, &str), patch: Value) {
    let generation =
        world.patch(kind, name, patch).await.unwrap()["metadata"]["generation"].clone();
    let done = |object: &Value| is_ready(object) && object["metadata"]["generation"] == generation;
    world.until(kind, name, done).await;
}

async fn scaled(world: &World, kind: Kind, name: &str, replicas: i64) {
    let path = format!("{}/{name}/scale", kind.path(&world.namespace));
    world.patch_at(&path, json!({"spec": {"replicas": replicas}})).await.unwrap();
    let there = |d: &Value| d["status"]["availableReplicas"] == replicas;
    world.until(DEPLOYMENT, name, there).await;
    world.until(kind, name, is_ready).await;
    let get = world.send(http::Method::GET, &path, "application/json", Value::Null);
    assert_eq!(get.await.unwrap()["status"]["replicas"], replicas);
}

async fn restored(world: &World, (kind, name): (Kind, &str), child: Kind) {
    let before = of(world, child, name).await["metadata"]["uid"].clone();
    world.delete(child, name).await;
    world.until(child, name, |found| found["metadata"]["uid"] != before).await;
    world.until(kind, name, is_ready).await;
}

async fn deleted(world: &World, (kind, name): (Kind, &str), children: &[Kind]) {
    world.delete(kind, name).await;
    world.until_gone(kind, name).await;
    for child in children {
        world.until_gone(*child, name).await;
    }
}

/// Compares the version's row of the table, or writes it.
fn is_or_becomes(version: &str, row: &str) {
    let text = std::fs::read_to_string(TABLE).unwrap();
    if std::env::var_os("UPDATE_VERSIONS").is_none() {
        assert!(text.lines().any(|line| line == row), "{TABLE} lacks the row {row}");
        return;
    }
    let head = "| Kubernetes | servers |\n|---|---|\n";
    let (before, after) = text.split_once(head).expect("the table");
    let end = after.lines().take_while(|line| line.starts_with("| ")).map(|l| l.len() + 1).sum();
    let (rows, after) = after.split_at(end);
    let start = format!("| {version} |");
    let mut rows: Vec<&str> = rows.lines().filter(|line| !line.starts_with(&start)).collect();
    rows.push(row);
    // Minor versions have two digits until 1.99.
    rows.sort_unstable();
    std::fs::write(TABLE, format!("{before}{head}{}\n{after}", rows.join("\n"))).unwrap();
}

/// The API server of the oldest version estimates the highest costs, and refuses a CRD whose rules, alone or
/// together, exceed their budget. It accepts each CRD with every rule twice. It refuses a CRD with every rule
/// eight times, which shows that it counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_each_crd_cost_at_most_half_the_budget() {
    let version = ControlPlane::versions().remove(0);
    if !ControlPlane::is_built(&version, &format!("the costs of CEL rules on Kubernetes {version}"))
    {
        return;
    }
    let oldest =
        move || ControlPlane::empty("costs", &["--only-api", "--kubernetes-version", &version]);
    let plane = ControlPlane::of_this_test(oldest).await;
    for file in
        ["app.example.com_apps", "cache.example.com_memcacheds", "mydomain.com_genericdaemons"]
    {
        let answer = with_rules(plane, file, 2);
        assert!(answer.is_ok(), "{file}: {}", answer.unwrap_err());
    }
    let refused = with_rules(plane, "app.example.com_apps", 8).unwrap_err();
    assert!(refused.contains("estimated rule cost exceeds budget"), "{refused}");
}

/// Returns whether the API server accepts a CRD with each rule this often.
fn with_rules(plane: &ControlPlane, file: &str, times: usize) -> Result<String, String> {
    let text = std::fs::read_to_string(format!("artifacts/crds/{file}.yaml")).unwrap();
    let mut crd: Value = serde_yaml_ng::from_str(&text).unwrap();
    multiply(&mut crd["spec"]["versions"][0]["schema"], times);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), crd.to_string()).unwrap();
    plane.try_kubectl(&["create", "--dry-run=server", "-f", file.path().to_str().unwrap()])
}

/// `(R) && (R)` costs twice what R does.
fn multiply(schema: &mut Value, times: usize) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| multiply(item, times)),
        Value::Object(map) => {
            if let Some(rule) = map.get("rule").and_then(Value::as_str) {
                let again = vec![format!("({rule})"); times].join(" && ");
                map.insert("rule".to_owned(), json!(again));
            }
            map.values_mut().for_each(|value| multiply(value, times));
        }
        _ => {}
    }
}
