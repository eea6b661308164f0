//! `flatcap::stream::fuzzing::deframe` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::stream::fuzzing::deframe(data));
