//! `flatcap::block::fuzzing::encode` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::block::fuzzing::encode(data));
