//! The contract, sentence by sentence, on a real control plane.
//!
//! kube-apiserver, etcd, kube-controller-manager, kube-scheduler and kwok's nodes are started once
//! for the whole run by hack/controlplane.sh and end with this process. Each test has its own
//! namespace (with Pod Security `restricted` enforced unless it says otherwise) and, in it, its own
//! operator: the shipped binary as a separate process under its own ServiceAccount, with exactly
//! the rights in artifacts/rbac/. Tests wait for events of the API server, never for time.

// A test binary exports nothing; `pub` marks what a module offers to the others.
#![allow(unreachable_pub)]
// A test that meets something unexpected has failed.
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
mod generic_daemon;
mod degraded;
mod nodes;
mod roles;
mod diagnostics;
mod app;
mod generated;
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
mod idle;
mod health;
mod monitoring;
mod metrics_over_tls;
#[cfg(feature = "otel")]
mod traces;
mod leadership;
mod failover;
mod check;
mod status;
mod plan;
mod command_line;
mod scripts;
mod packaging;
mod rights_taken;
mod helm;
mod upgrade;
mod olm;
#[path = "../lua/mod.rs"]
mod lua;
#[path = "../unchecked/mod.rs"]
mod unchecked;
mod argocd;
mod documented;

// Disturbances that it survives.
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
mod cgroup;
mod limits;
mod fairness;
mod pace;
mod large;
mod memory;
mod taken_away;
mod restore;
mod namespace_deletion;
mod wall_clock;

// Foundations of the other tests.
mod model_server;
mod cluster;
