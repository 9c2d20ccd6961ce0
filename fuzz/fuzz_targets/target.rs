#![no_main]

use std::sync::LazyLock;

use workload_operator_fuzz::{TARGETS, Target};

/// The target that the environment variable TARGET names.
static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("TARGET={name}: it is none of fuzz/src/lib.rs")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHOSEN(data));
