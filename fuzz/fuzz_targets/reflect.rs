//! `flatcap::schema::fuzzing::reflect` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::schema::fuzzing::reflect(data));
