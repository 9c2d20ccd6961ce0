//! Parts of a container that several kinds have.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Compute resources of a container.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[x_kube(validation = schema::request_within_limit("cpu"), validation = schema::request_within_limit("memory"), validation = schema::request_within_limit("ephemeral-storage"), validation = schema::whole_resources(), validation = schema::extended_requests())]
pub struct Resources {
    /// The most that may be used, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: BTreeMap<String, Quantity>,
    /// Amounts that are kept free, by resource name. The limit where absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: BTreeMap<String, Quantity>,
}

/// A check of the container by the kubelet, with one of `httpGet` and `tcpSocket`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::one_handler())]
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
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Seconds until a check without an answer has failed; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// Checks in a row that must fail; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub failure_threshold: Option<i32>,
}

/// An HTTP GET to the pod.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The path, for example '/healthz'; '/' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// The port: a number, or the name that is the `targetPort` of one of `ports`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
    /// 'HTTP' or 'HTTPS', whose certificate is not checked; 'HTTP' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::scheme")]
    pub scheme: Option<String>,
}

/// A connection to the pod.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TcpSocket {
    /// The port: a number, or the name that is the `targetPort` of one of `ports`.
    #[schemars(schema_with = "schema::probe_port")]
    pub port: IntOrString,
}

/// A volume, and where the container finds it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::one_volume_source())]
pub struct Volume {
    /// Its name.
    #[schemars(length(max = 63))]
    #[x_kube(validation = schema::volume_name())]
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
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
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
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
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
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirVolume {
    /// 'Memory' for a file system in memory, which counts as the container's; the node's disk if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::medium")]
    pub medium: Option<String>,
    /// The most that it may hold, for example '1Gi'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$"))]
    pub size_limit: Option<String>,
}

/// A PersistentVolumeClaim of the namespace.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// The claim's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::name_in("claimName"))]
    pub claim_name: String,
}
