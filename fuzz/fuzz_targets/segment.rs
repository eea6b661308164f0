//! `flatcap::segment::fuzzing::segment` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::segment::fuzzing::segment(data));
