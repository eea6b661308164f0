//! Bare loops that rows are compared with: sleeping, reading and writing by the kernel alone.
//! Budget: none.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;

/// Bytes per write, as in the recorder.
const WRITE_BYTES: usize = 256 << 10;
/// Preallocation step, as in the recorder.
const RESERVE_BYTES: u64 = 16 << 20;
/// Bytes per file, as in a segment.
const FILE_BYTES: u64 = 256 << 20;

/// The result of a loop on a grid of deadlines.
pub struct TickResult {
    /// Lateness of each tick, in nanoseconds.
    pub lateness: Vec<u64>,
    /// Ticks that never began because the tick before was still running.
    pub missed: u64,
}

/// Sleeps by `clock_nanosleep` to absolute deadlines with a timer slack of 1 ns and calls `work` at
/// each. Runs on a thread of its own, since timer slack is per thread.
pub fn tick(
    period_ns: u64,
    duration_ns: u64,
    mut work: impl FnMut() + Send + 'static,
) -> Result<TickResult, Box<dyn Error>> {
    let ticked = thread::spawn("bare", move || {
        thread::set_min_timer_slack()?;
        let mut ticked =
            TickResult { lateness: Vec::with_capacity((duration_ns / period_ns) as usize + 1), missed: 0 };
        let mut next = monotonic_ns() + period_ns;
        let end = next + duration_ns;
        while next < end {
            let deadline = Timespec {
                tv_sec: (next / NS_PER_S).cast_signed(),
                tv_nsec: (next % NS_PER_S).cast_signed(),
            };
            while clock_nanosleep_absolute(ClockId::Monotonic, &deadline).is_err() {}
            let begin = monotonic_ns();
            ticked.lateness.push(begin - next);
            work();
            // As in the samplers: ticks that passed during the work are missed, never caught up.
            let late = monotonic_ns().saturating_sub(next + period_ns) / period_ns;
            ticked.missed += late;
            next += (late + 1) * period_ns;
        }
        Ok::<_, std::io::Error>(ticked)
    })?;
    Ok(ticked.join().map_err(|_panic| "the bare loop ended by a panic")??)
}

/// Reads the files of the six host sources, each by one `pread` into a buffer that holds all of it.
pub fn reads() -> impl FnMut() + Send + 'static {
    const FILES: [&str; 9] = [
        "stat",
        "meminfo",
        "vmstat",
        "diskstats",
        "1/net/dev",
        "pressure/cpu",
        "pressure/memory",
        "pressure/io",
        "pressure/irq",
    ];
    let files: Vec<File> = FILES.iter().filter_map(|name| File::open(format!("/proc/{name}")).ok()).collect();
    let mut buffer = vec![0; 256 << 10];
    move || {
        for file in &files {
            let bytes = file.read_at(&mut buffer, 0).unwrap_or_default();
            std::hint::black_box(&buffer[..bytes]);
        }
    }
}

/// Writes `bytes` in writes of 256 KiB into files of 256 MiB, preallocated in steps of 16 MiB.
/// Another thread syncs once a second, and syncs and renames each full file. Returns the time until
/// everything is on disk, in nanoseconds. Removes the oldest finished files beyond `keep`.
pub fn write(folder: &Path, bytes: u64, keep: usize) -> Result<u64, Box<dyn Error>> {
    let buffer: Vec<u8> = (0..WRITE_BYTES).map(|at| ((at * 7) >> 3) as u8).collect();
    let (full, to_publish) = crossbeam_channel::bounded::<(u64, Arc<File>)>(16);
    let (opened, to_sync) = crossbeam_channel::bounded::<Arc<File>>(1024);
    let ended = Arc::new(AtomicBool::new(false));
    let begin = monotonic_ns();
    let syncer = {
        let (folder, ended) = (folder.to_owned(), Arc::clone(&ended));
        thread::spawn("bare-syncer", move || publish(&folder, &to_sync, &to_publish, &ended, keep))?
    };
    let (mut remaining, mut number) = (bytes, 0);
    while remaining > 0 {
        let path = folder.join(format!("{number}.active"));
        let file = Arc::new(File::options().create_new(true).append(true).open(path)?);
        opened.send(Arc::clone(&file))?;
        let (mut at, mut reserved) = (0, 0);
        while remaining > 0 && at < FILE_BYTES {
            let piece = (WRITE_BYTES as u64).min(remaining);
            if at + piece > reserved {
                reserved = (at + piece).next_multiple_of(RESERVE_BYTES);
                fallocate(&*file, FallocateFlags::KEEP_SIZE, 0, reserved)?;
            }
            (&*file).write_all(&buffer[..piece as usize])?;
            at += piece;
            remaining -= piece;
        }
        full.send((at, file))?;
        number += 1;
    }
    drop(full);
    ended.store(true, Ordering::Release);
    syncer.join().map_err(|_panic| "the bare syncer ended by a panic")??;
    Ok(monotonic_ns() - begin)
}

/// Does the syncer's work and nothing else: syncs the open file once a second, syncs and renames
/// full files.
fn publish(
    folder: &Path,
    opened: &crossbeam_channel::Receiver<Arc<File>>,
    full: &crossbeam_channel::Receiver<(u64, Arc<File>)>,
    ended: &AtomicBool,
    keep: usize,
) -> std::io::Result<()> {
    let directory = File::open(folder)?;
    let (mut number, mut open) = (0_usize, None::<Arc<File>>);
    let mut next_sync = monotonic_ns() + NS_PER_S;
    let never = WakeEvent::new();
    loop {
        open = opened.try_iter().last().or(open);
        while let Ok((length, file)) = full.try_recv() {
            file.set_len(length)?;
            file.sync_data()?;
            std::fs::rename(folder.join(format!("{number}.active")), folder.join(format!("{number}.bin")))?;
            directory.sync_all()?;
            if let Some(oldest) = number.checked_sub(keep) {
                std::fs::remove_file(folder.join(format!("{oldest}.bin")))?;
            }
            number += 1;
        }
        if ended.load(Ordering::Acquire) && full.is_empty() {
            return Ok(());
        }
        let now = monotonic_ns();
        if now >= next_sync {
            next_sync = now + NS_PER_S;
            if let Some(file) = &open {
                file.sync_data()?;
            }
        }
        never.wait_until(monotonic_ns() + 1_000_000);
    }
}
