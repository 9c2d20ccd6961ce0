//! Schemas of parts of pods that are sent as the user wrote them: tolerations, probes, volumes. The operator decodes
//! them as JSON values.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::Serialize;

use crate::schema;

/// A taint that the pods tolerate.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
    "a toleration must have a `key`, unless its `operator` is 'Exists'",
))]
#[x_kube(validation = (
    "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
    "a toleration with the `operator` 'Exists' must not have a `value`",
))]
#[x_kube(validation = (
    "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
    "a toleration with `tolerationSeconds` must have the `effect` 'NoExecute'",
))]
pub struct Toleration {
    /// Key of the taint. Without a key, `operator` must be 'Exists', which then matches all taints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::taint_key())]
    pub key: Option<String>,
    /// With 'Equal' (the default), the taint must have `value`. With 'Exists', it can have any value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Equal", "Exists", ""]))]
    pub operator: Option<String>,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
    )]
    pub value: Option<String>,
    /// Effect of the taint. Defaults to all effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute", ""]))]
    pub effect: Option<String>,
    /// Seconds for which a taint with effect 'NoExecute' is tolerated. Defaults to no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How the pods spread over groups of nodes, such as zones.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// Maximum difference between the numbers of pods in two groups.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// Node label that forms the groups, for example 'topology.kubernetes.io/zone'.
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::topology_key())]
    pub topology_key: String,
    /// With 'DoNotSchedule', a pod that would exceed `maxSkew` stays pending. With 'ScheduleAnyway', the scheduler only
    /// prefers other nodes.
    #[schemars(schema_with = "schema::when_unsatisfiable")]
    pub when_unsatisfiable: String,
}

/// Reference to a Secret.
#[derive(KubeSchema, Serialize)]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// A check of the container by the kubelet, with either `httpGet` or `tcpSocket`.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.httpGet) != has(self.tcpSocket)",
    "a probe must have either `httpGet` or `tcpSocket`",
))]
pub struct Probe {
    /// HTTP GET request. Passes if the response has a status code from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// TCP connection. Passes if the port accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// Seconds before the first check. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two checks. Defaults to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Seconds after which a check without a response fails. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// Number of consecutive checks that must fail. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub failure_threshold: Option<i32>,
}

/// An HTTP GET to the pod.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// Path of the request, for example '/healthz'. Defaults to '/'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^(/|$)"))]
    pub path: Option<String>,
    /// Port: a number, or a name that one of `ports` has as its `targetPort`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
    /// 'HTTP' (the default) or 'HTTPS'. The certificate is not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["HTTP", "HTTPS", ""]))]
    pub scheme: Option<String>,
}

/// A connection to the pod.
#[derive(KubeSchema, Serialize)]
pub struct TcpSocket {
    /// Port: a number, or a name that one of `ports` has as its `targetPort`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
}

/// A volume and its path in the container.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim)].filter(x, \
     x).size() == 1",
    "a volume must have one of `configMap`, `secret`, `emptyDir` and `persistentVolumeClaim`",
))]
pub struct Volume {
    /// Name of the volume.
    #[schemars(length(max = 63))]
    #[x_kube(validation = (
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "`name` must consist of lower-case letters, digits and '-', and begin and end with a letter or digit",
    ))]
    pub name: String,
    /// Path of the volume in the container, for example '/etc/shop'.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = schema::mount_path())]
    pub mount_path: String,
    /// If true, the container cannot write to the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// ConfigMap whose keys become files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// Secret whose keys become files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// Empty directory that is deleted with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirVolume>,
    /// PersistentVolumeClaim that all pods share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
}

/// A ConfigMap as files.
#[derive(KubeSchema, Serialize)]
pub struct ConfigMapVolume {
    /// Name of the ConfigMap.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
    /// If true, a pod can start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A Secret as files.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// Name of the Secret.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("secretName"))]
    pub secret_name: String,
    /// If true, a pod can start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// An empty directory.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirVolume {
    /// With 'Memory', the files are in memory and count towards the container's memory limit. Defaults to the node's
    /// disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Memory", ""]))]
    pub medium: Option<String>,
    /// Maximum size, for example '1Gi'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?)?$"))]
    pub size_limit: Option<String>,
}

/// A PersistentVolumeClaim of the namespace.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// Name of the PersistentVolumeClaim.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("claimName"))]
    pub claim_name: String,
}
