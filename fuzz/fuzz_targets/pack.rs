//! Runs `flatcap::block::fuzzing::encode` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::block::fuzzing::encode(data));
