//! The contract, tested on a real control plane.
//!
//! hack/controlplane.sh starts kube-apiserver, etcd, kube-controller-manager, kube-scheduler and kwok's nodes
//! once for the entire run. They end with this process. Each test has its own namespace, with Pod Security
//! `restricted` by default, and its own operator in it: the shipped binary as a separate process under its
//! own ServiceAccount, with exactly the permissions in artifacts/rbac/. Tests wait for events of the API
//! server, not for a fixed time.

// A test binary exports nothing; `pub` marks the interface of a module.
#![allow(unreachable_pub)]
// An unexpected result fails the test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod control_plane;
mod world;
mod zero_values;
mod operator_process;
mod http;

// Promises of the kinds.
mod common_to_all_kinds;
mod memcached;
mod real_memcached;
#[path = "../operator/histories/values.rs"]
#[allow(dead_code)]
mod values;
mod generic_daemon;
mod degraded;
mod nodes;
mod roles;
mod app;
mod names;
mod selectors;
mod inherited_labels;
mod autoscaler;
mod pod_security;
mod admission;
mod by_hand;
mod waiting;

// Promises of the example program.
mod examples;
mod writes;
mod foo;

// Promises of the running operator.
mod versions;
mod running;
mod health;
mod monitoring;
mod metrics_over_tls;
mod leadership;
mod check;
mod status;
mod plan;
mod command_line;
mod scripts;
mod packaging;
mod missing_permissions;
mod helm;
mod upgrade;
#[path = "../unchecked/mod.rs"]
mod unchecked;
mod documented;

// Disturbances that the operator survives.
mod proxy;
mod black_hole;
mod audit;
mod connection;
mod connect_proxy;
mod credentials;
mod servers;
mod stall;
mod api_server;
mod etcd;
mod slow_etcd;
mod shortages;
mod fairness;
mod templates;
mod large;
mod missing_dependencies;
mod restore;
mod namespace_deletion;

// Foundations of the other tests.
mod model_server;
mod cluster;
