//! A file-based catalog of two releases: the bundle, and an earlier one.

use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

const METADATA: &str = "artifacts/olm/metadata/annotations.yaml";

/// The earlier release had another image, could not delete Services, and its Memcached had no port.
pub const OLDER: &str = "workload-operator.v0.0.1";
pub const OLDER_IMAGE: &str = "workload-operator:0.0.1";
pub const NOT_YET: [&str; 3] = ["", "services", "delete"];

/// The name of a bundle's ClusterServiceVersion.
pub fn name_of(bundle: &[Value]) -> &str {
    csv_of(bundle)["metadata"]["name"].as_str().unwrap()
}

pub fn csv_of(bundle: &[Value]) -> &Value {
    bundle.iter().find(|object| object["kind"] == "ClusterServiceVersion").unwrap()
}

/// The objects of the bundle that hack/bundle.sh writes.
pub fn bundle() -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let written = std::process::Command::new("hack/bundle.sh").arg(folder.path()).status();
    assert!(written.unwrap().success(), "hack/bundle.sh");
    let files = std::fs::read_dir(folder.path().join("manifests")).unwrap();
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        serde_yaml_ng::from_str(&text).unwrap()
    };
    files.map(read).collect()
}

fn older() -> Vec<Value> {
    let mut bundle = bundle();
    for object in &mut bundle {
        if object["kind"] == "ClusterServiceVersion" {
            older_csv(object);
        } else if object["metadata"]["name"] == "memcacheds.cache.example.com" {
            without_port(object);
        }
    }
    bundle
}

fn older_csv(csv: &mut Value) {
    csv["metadata"]["name"] = json!(OLDER);
    csv["spec"]["version"] = json!("0.0.1");
    let install = &mut csv["spec"]["install"]["spec"];
    let template = &mut install["deployments"][0]["spec"]["template"];
    template["spec"]["containers"][0]["image"] = json!(OLDER_IMAGE);
    cannot_delete_services(install);
}

fn without_port(crd: &mut Value) {
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"].as_object_mut().unwrap();
    fields.remove("threads").unwrap();
}

fn cannot_delete_services(install: &mut Value) {
    let rules = install["permissions"][0]["rules"].as_array_mut().unwrap();
    let rule = rules.iter_mut().find(|rule| rule["resources"] == json!(["services"])).unwrap();
    rule["verbs"].as_array_mut().unwrap().retain(|verb| verb != "delete");
}

/// Writes the catalog into a directory. It contains a bundle's objects, where other catalogs name
/// an image that a pod would unpack.
pub fn write(folder: &Path) {
    let metadata: Value =
        serde_yaml_ng::from_str(&std::fs::read_to_string(METADATA).unwrap()).unwrap();
    let said = |key: &str| {
        let key = format!("operators.operatorframework.io.bundle.{key}.v1");
        metadata["annotations"][key.as_str()].as_str().unwrap()
    };
    let (package, channel) = (said("package"), said("channels"));
    let (older, newer) = (older(), bundle());
    let entries = json!([{"name": OLDER}, {"name": name_of(&newer), "replaces": OLDER}]);
    let catalog = [
        json!({"schema": "olm.package", "name": package,
            "defaultChannel": said("channel.default")}),
        json!({"schema": "olm.channel", "package": package, "name": channel, "entries": entries}),
        of_bundle(package, &older),
        of_bundle(package, &newer),
    ];
    let text: String = catalog.iter().map(|part| format!("{part}\n")).collect();
    std::fs::write(folder.join("catalog.json"), text).unwrap();
}

fn of_bundle(package: &str, bundle: &[Value]) -> Value {
    let version = &csv_of(bundle)["spec"]["version"];
    let property = |kind: &str, value: Value| json!({"type": kind, "value": value});
    let mut properties =
        vec![property("olm.package", json!({"packageName": package, "version": version}))];
    for object in bundle {
        let data = ByteString(object.to_string().into_bytes());
        properties.push(property("olm.bundle.object", json!({"data": data})));
        let spec = &object["spec"];
        if object["kind"] == "CustomResourceDefinition" {
            let gvk = json!({"group": spec["group"], "version": spec["versions"][0]["name"],
                "kind": spec["names"]["kind"]});
            properties.push(property("olm.gvk", gvk));
        }
    }
    json!({"schema": "olm.bundle", "name": name_of(bundle), "package": package, "image": "",
        "properties": properties})
}
