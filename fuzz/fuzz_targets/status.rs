#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| workload_operator_fuzz::status(data));
