//! Runs `flatcap_stream::fuzzing::recover` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_stream::fuzzing::recover(data));
