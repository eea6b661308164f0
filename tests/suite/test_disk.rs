//! Real file systems for tests, in a mount namespace that ends with the process that holds it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::rig::Rig;

/// A mounted file system that lasts as long as this value or the test's process.
pub struct TestDisk {
    holder: Child,
    inside: PathBuf,
}

impl TestDisk {
    /// Mounts a tmpfs of this size. Returns none, with a notice, if it cannot be mounted.
    pub fn tmpfs(rig: &Rig, bytes: u64) -> Option<Self> {
        Self::mount(rig, &format!("mount -t tmpfs -o size={bytes} none \"$1\""))
    }

    /// Mounts an ext4 whose device has less space than it claims: write-back beyond the space
    /// fails.
    pub fn failing_ext4(rig: &Rig, device_bytes: u64) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs -o size={device_bytes} none \"$1\" && truncate -s 256M \"$1/image\" && \
             mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=1,nodiscard -N 64 -F \"$1/image\" && mkdir \"$1/data\" && \
             mount -o loop,errors=continue \"$1/image\" \"$1/data\""
        );
        Self::mount(rig, &script)
    }

    /// Mounts an ext4 of 128 MiB that can be frozen.
    pub fn ext4(rig: &Rig) -> Option<Self> {
        let script = "mount -t tmpfs -o size=256M none \"$1\" && truncate -s 128M \"$1/image\" && \
             mkfs.ext4 -q -E nodiscard -N 64 -F \"$1/image\" && mkdir \"$1/data\" && \
             mount -o loop \"$1/image\" \"$1/data\"";
        Self::mount(rig, script)
    }

    /// Blocks every write to the ext4 until the returned value is dropped.
    pub fn freeze(&self) -> FrozenDisk<'_> {
        assert!(self.fsfreeze("--freeze"));
        FrozenDisk(self)
    }

    fn fsfreeze(&self, what: &str) -> bool {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string(), "fsfreeze", what]);
        command.arg(self.inside.join("data")).status().is_ok_and(|status| status.success())
    }

    fn mount(rig: &Rig, script: &str) -> Option<Self> {
        let inside = rig.path("medium");
        std::fs::create_dir(&inside).unwrap();
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", &format!("{script} && echo mounted && exec cat"), "sh"])
            .arg(&inside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let disk = Self { holder, inside };
        if line.trim() != "mounted" {
            println!("skipped: needs root, a mount namespace, and tmpfs or loop devices");
            return None;
        }
        Some(disk)
    }

    /// Returns its path, valid for every process of the host.
    pub fn path(&self) -> PathBuf {
        let inside = self.inside.strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    /// Changes its size.
    pub fn resize(&self, bytes: u64) {
        let status = Command::new("nsenter")
            .args(["--mount", "--target", &self.holder.id().to_string(), "mount", "-o"])
            .arg(format!("remount,size={bytes}"))
            .arg(&self.inside)
            .status();
        assert!(status.unwrap().success());
    }
}

/// Keeps a file system frozen until it is dropped.
pub struct FrozenDisk<'a>(&'a TestDisk);

impl Drop for FrozenDisk<'_> {
    fn drop(&mut self) {
        self.0.fsfreeze("--unfreeze");
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        let _ended = self.holder.kill();
        let _ended = self.holder.wait();
    }
}

/// Returns the bytes that each file of a directory occupies.
pub fn allocated(directory: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = std::fs::read_dir(directory) else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let blocks = entry.metadata().ok()?.blocks();
            Some((entry.file_name().into_string().unwrap(), blocks * 512))
        })
        .collect()
}
