//! Runs `flatcap_format::block::fuzzing::encode` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_format::block::fuzzing::encode(data));
