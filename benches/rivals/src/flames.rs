//! Flame graphs of benches: criterion's profiler hook, active with `--profile-time SECONDS`.
//!
//! `cargo bench --bench throughput -- --profile-time 5 'row_zstd:3'` writes
//! `target/criterion/<group>/<bench>/profile/flamegraph.svg`.

use std::fs::{File, create_dir_all};
use std::path::Path;

use criterion::profiler::Profiler;
use pprof::ProfilerGuard;

/// Stack samples per second: a prime, so that no loop runs in step with it.
const SAMPLES_A_SECOND: i32 = 997;

/// Samples the stack while a bench runs and draws a flame graph. The timer runs only between the
/// two calls.
#[derive(Default)]
pub struct Flames {
    running: Option<ProfilerGuard<'static>>,
}

impl Profiler for Flames {
    fn start_profiling(&mut self, _bench: &str, _folder: &Path) {
        self.running = Some(ProfilerGuard::new(SAMPLES_A_SECOND).expect("one profiler at a time"));
    }

    fn stop_profiling(&mut self, bench: &str, folder: &Path) {
        let Some(running) = self.running.take() else { return };
        create_dir_all(folder).expect("a folder of the target directory");
        let path = folder.join("flamegraph.svg");
        let file = File::create(&path).expect("a file of the target directory");
        let report = running.report().build().expect("samples");
        report.flamegraph(file).expect("a file of the target directory");
        println!("{bench}: {}", path.display());
    }
}
