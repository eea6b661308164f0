//! Measures a sample of a thousand processes against bare reads of the same files. Target: 8 % of
//! one core at 10 Hz.
//!
//! A thousand children sleep. The source reads `stat` and `io` of every process of the host; a loop
//! with the same files open reads them by `pread` and does nothing else. Both take turns; the
//! median of all rounds counts. Times are the thread's CPU time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};

use flatbuffers::FlatBufferBuilder;
use flatcap::config::Config;
use flatcap_os::host::HostRoot;
use flatcap_sampling::{OpenContext, OpenedSampler, Sampler};
use rustix::time::{ClockId, clock_gettime};

const CHILDREN: usize = 1_000;
const ROUNDS: usize = 101;
const SAMPLES_A_SECOND: f64 = 10.0;

struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn timed(mut work: impl FnMut()) -> f64 {
    let begin = thread_seconds();
    work();
    thread_seconds() - begin
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn sampler(keys: &str) -> Box<dyn Sampler> {
    let text = format!("[source.process]\nfull_interval = \"1ms\"\n{keys}\n");
    let config = Config::parse("bench.toml", &text).unwrap();
    let source = config.sources.iter().find(|source| source.spec.name == "process").unwrap();
    match source.spec.open(&OpenContext { host: &HostRoot::new("/"), settings: source.settings() }).unwrap() {
        OpenedSampler::Built(sampler) => sampler,
        OpenedSampler::Fixed(_) => panic!("processes come and go"),
    }
}

fn main() {
    let spawn = |_| Command::new("sleep").arg("600").spawn().unwrap();
    let children = Sleepers((0..CHILDREN).map(spawn).collect());
    let cases = [
        ("all processes", ""),
        ("the first 20 by CPU time", "top = 20"),
        ("without command lines and groups", "command_lines = \"off\"\ncgroup_paths = false"),
        ("one name among a thousand others", "include = [\"sources_process*\"]"),
    ];
    let mut samplers: Vec<_> = cases.iter().map(|(_, keys)| sampler(keys)).collect();
    let pids: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    let open = |pid: &u32, name: &str| File::open(format!("/proc/{pid}/{name}")).ok();
    let files: Vec<File> =
        pids.iter().flat_map(|pid| [open(pid, "stat"), open(pid, "io")]).flatten().collect();

    let mut buffer = [0; 2048];
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    let mut bare = Vec::new();
    let mut costs = vec![Vec::new(); cases.len()];
    let mut payload_bytes = vec![0; cases.len()];
    for round in 0..ROUNDS {
        bare.push(timed(|| {
            for file in &files {
                // The process may have ended.
                let _ = file.read_at(&mut buffer, 0);
            }
        }));
        for (index, sampler) in samplers.iter_mut().enumerate() {
            builder.reset();
            costs[index].push(timed(|| {
                sampler.read().unwrap();
                sampler.build(round as u64, &mut builder);
            }));
            payload_bytes[index] = builder.finished_data().len();
        }
        // As at 10 Hz, so that work done once a second occurs in one round of ten.
        std::thread::sleep(std::time::Duration::from_millis(60));
    }

    let bare = median(bare);
    println!("{} processes, {} files", pids.len(), files.len());
    println!(
        "bare preads: {:.2} ms per sample, {:.2} us per process",
        bare * 1e3,
        bare * 1e6 / pids.len() as f64
    );
    for (((name, _), costs), bytes) in cases.iter().zip(costs).zip(payload_bytes) {
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        let middle = median(costs);
        println!(
            "{name}: {:.2} ms a sample (mean {:.2}), {:.2} us a process, {:.2} x the bare reads, {:.1} % of a core at 10 Hz, \
             {bytes} bytes",
            middle * 1e3,
            mean * 1e3,
            middle * 1e6 / pids.len() as f64,
            middle / bare,
            mean * SAMPLES_A_SECOND * 100.0,
        );
    }
    drop(children);
}
