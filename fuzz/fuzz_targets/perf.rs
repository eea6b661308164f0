//! Runs `flatcap::os::fuzzing::perf` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::os::fuzzing::perf(data));
