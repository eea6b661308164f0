//! Runs `flatcap_query::fuzzing::agree` on inputs of libFuzzer, each written to a file: a
//! recording is opened by its path.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("flatcap-fuzz-query-{}.bin", std::process::id())));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    std::fs::write(&*PATH, data).expect("a temporary file");
    flatcap_query::fuzzing::agree(&PATH);
});
