//! `flatcap::stream::fuzzing::slice` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::stream::fuzzing::slice(data));
