//! Describes the machine for the head of the table: date, processor, kernel, file system, load.
//! Budget: none.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Cargo's target directory.
pub fn target_directory() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    folder.parent().unwrap_or(folder).to_owned()
}

/// A new directory on the disk of cargo's target directory.
pub fn disk_folder() -> std::io::Result<tempfile::TempDir> {
    std::fs::create_dir_all(env!("CARGO_TARGET_TMPDIR"))?;
    tempfile::Builder::new().prefix("capture-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))
}

/// A new directory on tmpfs.
pub fn memory_folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("flatcap-capture-").tempdir_in("/dev/shm")
}

/// Today's date in UTC.
pub fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let moment = jiff::Timestamp::from_second(seconds.cast_signed()).unwrap_or_default();
    moment.strftime("%F").to_string()
}

/// Processor, kernel and file system.
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = processors.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} x {model}, Linux {}, {} on disk", kernel.trim(), file_system(&target_directory()))
}

/// The file system type of a directory, by the longest mount point that contains it.
fn file_system(directory: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let holding = mounts.lines().filter_map(mount).filter(|(point, _)| directory.starts_with(point));
    holding
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown file system".to_owned(), |(_, kind)| kind)
}

/// The load average over one minute.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
