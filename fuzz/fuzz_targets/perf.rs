//! Runs `flatcap_os::fuzzing::perf` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_os::fuzzing::perf(data));
