//! Runs `flatcap_lane::fuzzing::ring` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_lane::fuzzing::ring(data));
