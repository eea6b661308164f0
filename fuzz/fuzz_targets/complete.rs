//! `flatcap::segment::fuzzing::complete` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::segment::fuzzing::complete(data));
