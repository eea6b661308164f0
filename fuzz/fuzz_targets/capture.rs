//! `flatcap::import::iex::fuzzing::capture` on what libFuzzer makes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap::import::iex::fuzzing::capture(data));
