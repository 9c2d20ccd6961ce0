//! Lists that server-side apply merges by keys.

/// Returns the keys of the list in this field of a built-in kind (`x-kubernetes-list-map-keys`), or `None` if its owner
/// sets it as a whole. `has` returns whether the items have a field, because two lists are named `ports`: that of a
/// container, and that of a Service. The first key is required.
pub fn list_keys(field: &str, has: impl Fn(&str) -> bool) -> Option<&'static [&'static str]> {
    Some(match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "hostAliases" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "ports" if has("containerPort") => &["containerPort", "protocol"],
        "ports" => &["port", "protocol"],
        _ => return None,
    })
}
