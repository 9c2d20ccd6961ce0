//! The cache against a model of the API server: the guarantees of a reflector, a store and an informer
//! together, under every fault that a real API server can show.
//!
//! Time is virtual and everything follows from a seed. A failure names its seed:
//! `CACHE_SEED=123 cargo test --test cache` runs only that one, `CACHE_SEEDS=100000` runs more.

#[path = "cache/thing.rs"]
mod thing;
#[path = "cache/witness.rs"]
mod witness;
#[path = "cache/simulation.rs"]
mod simulation;
#[path = "cache/scenarios/mod.rs"]
mod scenarios;
