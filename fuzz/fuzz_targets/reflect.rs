//! Runs `flatcap_format::schema::fuzzing::reflect` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_format::schema::fuzzing::reflect(data));
