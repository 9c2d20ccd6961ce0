//! Writes the manifests of the OLM bundle for `hack/bundle.sh`: the ClusterServiceVersion, and one object per file.
//!
//! Run `bundle FOLDER TIME [IMAGE]` in the root of the repository. TIME is the creation time of the bundle, in seconds
//! since 1970.

use std::error::Error;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CSV: &str = "workload-operator.clusterserviceversion.yaml";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(time)) = (arguments.next(), arguments.next()) else {
        return Err("bundle FOLDER TIME [IMAGE]".into());
    };
    let write = |name: &str, text: &str| std::fs::write(Path::new(&folder).join(name), text);
    let created = jiff::Timestamp::from_second(time.parse()?)?.to_string();
    let csv = service_version(&created, arguments.next().as_deref())?;
    // Old YAML parsers read an unquoted time as a timestamp instead of a string.
    let quoted = serde_yaml_ng::to_string(&csv)?.replace(&created, &format!("'{created}'"));
    write(CSV, &quoted)?;
    for file in [
        "rbac/user-roles",
        "rbac/metrics-reader",
        "default/service",
        "default/pod-disruption-budget",
    ] {
        for mut object in documents(file)? {
            // OLM sets the namespace.
            object["metadata"].as_object_mut().ok_or("no metadata")?.remove("namespace");
            let kind = text(&object["kind"]).to_lowercase();
            let name = format!("{}_{kind}.yaml", text(&object["metadata"]["name"]));
            write(&name, &serde_yaml_ng::to_string(&object)?)?;
        }
    }
    Ok(())
}

fn service_version(created: &str, image: Option<&str>) -> Result<Value> {
    let mut csv = document(&format!("olm/{}", CSV.trim_end_matches(".yaml")))?;
    csv["spec"]["install"] = install(image)?;
    let container = &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"]
        [0];
    let image = container["image"].clone();
    csv["spec"]["relatedImages"] = related_images(container);
    let annotations = &mut csv["metadata"]["annotations"];
    annotations["containerImage"] = image;
    annotations["createdAt"] = json!(created);
    let examples =
        ["memcached", "syslog", "nginx-app"].map(|name| document(&format!("examples/{name}")));
    let examples = examples.into_iter().collect::<Result<Vec<_>>>()?;
    annotations["alm-examples"] = json!(serde_json::to_string_pretty(&examples)?);
    for owned in
        csv["spec"]["customresourcedefinitions"]["owned"].as_array_mut().into_iter().flatten()
    {
        let (plural, group) =
            text(&owned["name"]).split_once('.').ok_or("a name without a group")?;
        let crd = document(&format!("crds/{group}_{plural}"))?;
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        owned["specDescriptors"] = descriptors(&schema["spec"]);
        owned["statusDescriptors"] = descriptors(&schema["status"]);
    }
    Ok(csv)
}

/// Returns the installation section of the ClusterServiceVersion. OLM creates the ServiceAccount, roles and bindings
/// from it. WATCH_NAMESPACE contains the namespaces of the OperatorGroup. Rules under `permissions` are granted only in
/// those namespaces, or in the cluster if the OperatorGroup selects all namespaces.
fn install(image: Option<&str>) -> Result<Value> {
    let deployment = document("default/deployment")?;
    let mut spec = deployment["spec"].clone();
    let container = &mut spec["template"]["spec"]["containers"][0];
    if let Some(image) = image {
        container["image"] = json!(image);
    }
    // OLM installs no policies, which decide who can set templates.
    let arguments = container["args"].as_array_mut().ok_or("no args")?;
    arguments.retain(|argument| argument != "--allow-templates");
    let namespaces =
        json!({"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}});
    let variables = container["env"].as_array_mut().ok_or("no env")?;
    variables.push(json!({"name": "WATCH_NAMESPACE", "valueFrom": namespaces}));
    let account = "workload-operator";
    let (mut in_cluster, mut in_namespaces) = rules("rbac/operator", "ClusterRole")?
        .into_iter()
        .partition::<Vec<_>, _>(|rule| rule["resources"] == json!(["nodes"]));
    in_cluster.extend(rules("rbac/metrics", "ClusterRole")?);
    in_namespaces.extend(rules("rbac/operator", "Role")?);
    Ok(json!({"strategy": "deployment", "spec": {
        "clusterPermissions": [{"serviceAccountName": account, "rules": in_cluster}],
        "permissions": [{"serviceAccountName": account, "rules": in_namespaces}],
        "deployments": [{"name": account, "label": deployment["metadata"]["labels"], "spec": spec}],
    }}))
}

fn rules(file: &str, kind: &str) -> Result<Vec<Value>> {
    let role = documents(file)?.into_iter().find(|object| object["kind"] == kind);
    Ok(role
        .and_then(|role| role["rules"].as_array().cloned())
        .ok_or_else(|| format!("no {kind} in {file}"))?)
}

/// Returns the images that a disconnected cluster must mirror: that of the container, and those in its variables.
fn related_images(container: &Value) -> Value {
    let operator = json!({"name": container["name"], "image": container["image"]});
    let others = container["env"].as_array().into_iter().flatten().filter_map(|variable| {
        let name = text(&variable["name"]).strip_suffix("_IMAGE")?.to_lowercase().replace('_', "-");
        Some(json!({"name": name, "image": variable["value"]}))
    });
    std::iter::once(operator).chain(others).collect()
}

/// Returns the descriptors of all fields, from which consoles show the descriptions of the CRD.
fn descriptors(schema: &Value) -> Value {
    let one = |(path, field): (&String, &Value)| {
        let words = text(&field["description"]).replace('\n', " ");
        json!({"path": path, "displayName": title(path), "description": words})
    };
    schema["properties"].as_object().into_iter().flatten().map(one).collect()
}

/// Returns a field's name as a title: `Ready Replicas` for `readyReplicas`.
fn title(field: &str) -> String {
    let mut title = String::new();
    for (at, letter) in field.char_indices() {
        if at > 0 && letter.is_uppercase() {
            title.push(' ');
        }
        title.push(if at == 0 { letter.to_ascii_uppercase() } else { letter });
    }
    title
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn document(file: &str) -> Result<Value> {
    Ok(documents(file)?.swap_remove(0))
}

/// Returns the objects in a file below `artifacts/`.
fn documents(file: &str) -> Result<Vec<Value>> {
    let file = format!("artifacts/{file}.yaml");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let all = serde_yaml_ng::Deserializer::from_str(&text);
    Ok(all.map(Value::deserialize).collect::<std::result::Result<_, _>>()?)
}
