//! Runs `flatcap_format::segment::fuzzing::name` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_format::segment::fuzzing::name(data));
