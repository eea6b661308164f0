//! Runs `flatcap_stream::fuzzing::deframe` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_stream::fuzzing::deframe(data));
