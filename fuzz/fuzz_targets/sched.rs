//! Runs `flatcap_tasks::fuzzing::sched` on inputs of libFuzzer.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flatcap_tasks::fuzzing::sched(data));
