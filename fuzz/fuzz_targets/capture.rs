//! Runs `flatcap_import::iex::fuzzing::capture` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_import::iex::fuzzing::capture(data));
