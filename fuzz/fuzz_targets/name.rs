//! Runs `flatcap::segment::fuzzing::name` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::segment::fuzzing::name(data));
