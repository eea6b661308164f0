//! A small file system on a loop device whose writes can be stalled. Needs root, loop devices and
//! mkfs.ext4.
//!
//! Writes are stalled in two ways: the file system is frozen (`fsfreeze`), or the device is
//! throttled for the control group of the decoys, where the kernel has version 1 of `blkio`.
//! Nobody but the culprit writes there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const IMAGE_BYTES: u64 = 32 << 20;
/// A write of 16 KiB takes a quarter of a second.
const THROTTLED_BYTES_PER_S: u64 = 64 << 10;
const BLKIO: &str = "/sys/fs/cgroup/blkio";

/// The way in which writes are stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallMethod {
    Freeze,
    Throttle,
}

impl StallMethod {
    /// Its name in the truth.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze => "frozen",
            Self::Throttle => "throttled",
        }
    }
}

/// The mounted file system. Unmounted when dropped.
#[derive(Debug)]
pub struct StallDevice {
    /// The directory in which it is mounted.
    pub mount: PathBuf,
    /// The kinds that work on this machine; at least one.
    pub methods: Vec<StallMethod>,
    group: PathBuf,
    device: String, // MAJOR:MINOR
}

impl StallDevice {
    /// Creates and mounts the file system below `folder`. The error says why this machine does not
    /// permit it, in one line.
    pub fn create(folder: &Path, pids: &[u32]) -> Result<Self, String> {
        let (image, mount) = (folder.join("stall.ext4"), folder.join("stall"));
        let io_error = |error: std::io::Error| error.to_string();
        let file = std::fs::OpenOptions::new().create_new(true).write(true).open(&image);
        file.and_then(|file| file.set_len(IMAGE_BYTES)).map_err(io_error)?;
        std::fs::create_dir(&mount).map_err(io_error)?;
        call("mkfs.ext4", &["-q", "-F", &image.to_string_lossy()])?;
        call("mount", &["-o", "loop", &image.to_string_lossy(), &mount.to_string_lossy()])?;
        let group = Path::new(BLKIO).join(format!("flatcap-incidents-{}", std::process::id()));
        let mut created = Self { mount, methods: Vec::new(), group, device: String::new() };
        let device = std::fs::metadata(&created.mount).map_err(io_error)?.dev();
        created.device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        // Each method is tried once.
        if created.freeze(true).and_then(|()| created.freeze(false)).is_ok() {
            created.methods.push(StallMethod::Freeze);
        }
        if created.make_group(pids).and_then(|()| created.throttle(true)).is_ok()
            && created.throttle(false).is_ok()
        {
            created.methods.push(StallMethod::Throttle);
        }
        if created.methods.is_empty() {
            return Err("neither fsfreeze nor cgroup blkio works here".to_owned());
        }
        Ok(created)
    }

    /// Begins or ends a stall.
    pub fn set_stalled(&self, method: StallMethod, is_stalled: bool) -> Result<(), String> {
        match method {
            StallMethod::Freeze => self.freeze(is_stalled),
            StallMethod::Throttle => self.throttle(is_stalled),
        }
    }

    fn freeze(&self, is_frozen: bool) -> Result<(), String> {
        let action = if is_frozen { "--freeze" } else { "--unfreeze" };
        call("fsfreeze", &[action, &self.mount.to_string_lossy()])
    }

    fn make_group(&self, pids: &[u32]) -> Result<(), String> {
        std::fs::create_dir(&self.group).map_err(|error| error.to_string())?;
        for pid in pids {
            std::fs::write(self.group.join("cgroup.procs"), pid.to_string())
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn throttle(&self, is_throttled: bool) -> Result<(), String> {
        // 0 removes the limit.
        let limit = if is_throttled { THROTTLED_BYTES_PER_S } else { 0 };
        std::fs::write(self.group.join("blkio.throttle.write_bps_device"), format!("{} {limit}", self.device))
            .map_err(|error| error.to_string())
    }
}

impl Drop for StallDevice {
    /// Runs after the decoys have ended.
    fn drop(&mut self) {
        // Fails unless a stall was interrupted.
        let _thawed = self.freeze(false);
        let _removed = std::fs::remove_dir(&self.group);
        if let Err(error) = call("umount", &[&self.mount.to_string_lossy()]) {
            eprintln!("incidents: {error}");
        }
    }
}

fn call(program: &str, arguments: &[&str]) -> Result<(), String> {
    let shown = format!("{program} {}", arguments.join(" "));
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{shown}: {}", text.lines().next().unwrap_or("failed")))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}
