//! Runs `flatcap::segment::fuzzing::complete` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::segment::fuzzing::complete(data));
