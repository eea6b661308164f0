//! `flatcap::stream::fuzzing::recover` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::stream::fuzzing::recover(data));
