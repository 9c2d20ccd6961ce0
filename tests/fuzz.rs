//! The fuzz targets on stable Rust: the inputs of fuzz/seeds, and a fixed number of mutations of
//! them.
//!
//! `FUZZ_RUNS` is the number of mutations per target (default 2000), `FUZZ_SEED` the seed of the random numbers. hack/campaigns/fuzz.sh searches for longer, guided
//! by coverage: docs/TESTING.md.

// A target panics if a guarantee is broken; it is `pub` for cargo-fuzz.
#![allow(unreachable_pub, clippy::panic, clippy::unwrap_used)]

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::catch_unwind;

/// The default number of mutations.
const RUNS: u64 = 2000;
/// The longest mutated input, in bytes.
const LONGEST: usize = 8 << 10;
/// Tokens with a meaning for a target.
const TOKENS: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"null",
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"\"items\":[",
    b"\"metadata\":{",
    b"\"type\":\"ADDED\"",
    b"\"resourceVersion\":\"",
    b"\xff",
    b"\0",
    b"%2",
    b"\\ud800",
];

#[test]
fn a_watch_decodes_equally_in_any_chunks() {
    drive("watch");
}

#[test]
fn a_list_decodes_equally_in_any_chunks() {
    drive("list");
}

#[test]
fn any_refusal_is_a_readable_error() {
    drive("status");
}

#[test]
fn versions_and_quantities_have_a_consistent_order() {
    drive("numbers");
}

#[test]
fn the_query_contains_the_requested_selector() {
    drive("query");
}

/// Runs a target with its seeds, then with mutations of them.
fn drive(name: &str) {
    let var = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (_, target) = targets::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut seeds: Vec<_> = fs::read_dir(format!("fuzz/seeds/{name}"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // The same order everywhere.
    seeds.sort();
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|path| fs::read(path).unwrap()).collect();
    seeds.iter().for_each(|seed| attempt(name, *target, seed));
    let mut rng = fastrand::Rng::with_seed(var("FUZZ_SEED").unwrap_or(1));
    for _ in 0..var("FUZZ_RUNS").unwrap_or(RUNS) {
        let mut input = rng.choice(&seeds).unwrap().clone();
        for _ in 0..rng.u8(1..6) {
            mutate(&mut input, &seeds, &mut rng);
        }
        input.truncate(LONGEST);
        attempt(name, *target, &input);
    }
}

fn attempt(name: &str, target: fn(&[u8]), input: &[u8]) {
    if catch_unwind(|| target(input)).is_err() {
        let path = std::env::temp_dir().join(format!("fuzz-{name}-{}", std::process::id()));
        fs::write(&path, input).unwrap();
        panic!("{name} broke on {}; once mended, it belongs in fuzz/seeds/{name}", path.display());
    }
}

/// Makes one change of a kind that fuzzers make.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut fastrand::Rng) {
    let at = rng.usize(..=input.len());
    let to = (at + rng.usize(..=16)).min(input.len());
    match rng.u8(..8) {
        0 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
        1 if at < input.len() => input[at] = rng.u8(..),
        2 => drop(input.drain(at..to)),
        3 => {
            let again = input[at..to].to_vec();
            input.splice(at..at, again);
        }
        4 => {
            let other = rng.choice(seeds).unwrap();
            let from = rng.usize(..=other.len());
            input.splice(at..to, other[from..].iter().copied());
        }
        5 => input.truncate(at),
        _ => {
            let word = rng.choice(TOKENS).unwrap();
            input.splice(at..to, word.iter().copied());
        }
    }
}
