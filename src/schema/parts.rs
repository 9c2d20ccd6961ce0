//! Schemas of parts of pods that are sent as the user wrote them: tolerations, probes, volumes. The operator decodes
//! them as JSON values.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::Serialize;

use crate::schema;

/// A taint that does not keep the pods from a node.
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
    /// The key of the taint; all of them if absent and `operator` is 'Exists'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::taint_key())]
    pub key: Option<String>,
    /// 'Equal' (the default) compares `value`, 'Exists' does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Equal", "Exists", ""]))]
    pub operator: Option<String>,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
    )]
    pub value: Option<String>,
    /// The effect of the taint; each of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute", ""]))]
    pub effect: Option<String>,
    /// Seconds for which a taint of effect 'NoExecute' is tolerated; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Spreading of the pods over the nodes with each value of a label.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// The largest difference between the numbers of pods.
    #[schemars(range(min = 1))]
    pub max_skew: i32,
    /// The label, for example 'topology.kubernetes.io/zone'.
    #[schemars(length(max = 317))]
    #[x_kube(validation = schema::topology_key())]
    pub topology_key: String,
    /// 'DoNotSchedule' leaves a pod pending, 'ScheduleAnyway' prefers the other nodes.
    #[schemars(schema_with = "schema::when_unsatisfiable")]
    pub when_unsatisfiable: String,
}

/// The name of a Secret.
#[derive(KubeSchema, Serialize)]
pub struct SecretName {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
}

/// A check of the container by the kubelet, with one of `httpGet` and `tcpSocket`.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.httpGet) != has(self.tcpSocket)",
    "a probe must have either `httpGet` or `tcpSocket`",
))]
pub struct Probe {
    /// Passes if an HTTP GET is answered with a code from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// Passes if the port accepts a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// Seconds before the first check; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two checks; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Seconds until a check without an answer has failed; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// Checks in a row that must fail; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub failure_threshold: Option<i32>,
}

/// An HTTP GET to the pod.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The path, for example '/healthz'; '/' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^(/|$)"))]
    pub path: Option<String>,
    /// The port: a number, or the name that is the `targetPort` of one of `ports`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
    /// 'HTTP' or 'HTTPS', whose certificate is not checked; 'HTTP' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["HTTP", "HTTPS", ""]))]
    pub scheme: Option<String>,
}

/// A connection to the pod.
#[derive(KubeSchema, Serialize)]
pub struct TcpSocket {
    /// The port: a number, or the name that is the `targetPort` of one of `ports`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
}

/// A volume, and where the container finds it.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim)].filter(x, \
     x).size() == 1",
    "a volume must have one of `configMap`, `secret`, `emptyDir` and `persistentVolumeClaim`",
))]
pub struct Volume {
    /// Its name.
    #[schemars(length(max = 63))]
    #[x_kube(validation = (
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "`name` must consist of lower-case letters, digits and '-', and begin and end with a letter or digit",
    ))]
    pub name: String,
    /// The path of the volume in the container, for example '/etc/shop'.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = schema::mount_path())]
    pub mount_path: String,
    /// True if the container may not write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// A ConfigMap, with a file for each key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// A Secret, with a file for each key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// An empty directory that is deleted with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirVolume>,
    /// A PersistentVolumeClaim, which all pods share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
}

/// A ConfigMap as files.
#[derive(KubeSchema, Serialize)]
pub struct ConfigMapVolume {
    /// The ConfigMap's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: String,
    /// True if a pod may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A Secret as files.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("secretName"))]
    pub secret_name: String,
    /// True if a pod may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// An empty directory.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirVolume {
    /// 'Memory' for a file system in memory, which counts as the container's; the node's disk if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Memory", ""]))]
    pub medium: Option<String>,
    /// The most that it may hold, for example '1Gi'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?)?$"))]
    pub size_limit: Option<String>,
}

/// A PersistentVolumeClaim of the namespace.
#[derive(KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// The claim's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("claimName"))]
    pub claim_name: String,
}
