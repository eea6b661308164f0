//! Runs `flatcap_trigger::fuzzing::condition` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_trigger::fuzzing::condition(data));
