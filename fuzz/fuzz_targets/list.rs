#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| workload_operator_fuzz::list(data));
