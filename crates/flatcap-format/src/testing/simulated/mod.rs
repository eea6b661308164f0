//! A storage in memory that separates the state that a process sees (the page cache) from the state
//! on disk. The storage fails and crashes at the operations that a test has chosen, and returns a
//! possible state after a crash.
//!
//! The storage guarantees no more than the kernel. Unsynced sectors reach the disk in any order or
//! not at all. Directory entries are durable only after the directory is synced. A failed sync may
//! have dropped the data that it did not write. All random choices depend on seeds, so that a
//! failure can be reproduced.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

pub use super::fault::{CrashKind, CrashPoint, InjectedFailure};
pub use super::simulated_disk::SimulationRandom;
use super::simulated_disk::{Displaced, PAGE_BYTES, SimulatedDirectory, SimulatedInode};
use crate::storage::{DiskSpace, FileEntry, Storage, StorageFile};
use file::SimulatedFile;

/// The errno ESHUTDOWN, which means that the storage has crashed. No file system returns ESHUTDOWN,
/// and an errno survives every conversion of errors.
const CRASHED: i32 = 108;
/// The errno EPERM, which is the kernel's error for an immutable file.
const NOT_PERMITTED: i32 = 1;
/// The errno ENOSPC.
const NO_SPACE: i32 = 28;
/// The errno EDQUOT.
const QUOTA_EXCEEDED: i32 = 122;
/// The errno EMFILE.
const TOO_MANY_FILES: i32 = 24;

/// A directory on a simulated disk. Clones share the directory and the disk.
#[derive(Debug, Clone)]
pub struct SimulatedStorage {
    disk: Arc<Mutex<SimulatedDisk>>,
}

/// A logged operation, which changes or syncs a file or the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Create {
        name: String,
    },
    /// An append, with the range of the bytes that were written. The caller may have passed more
    /// bytes.
    Append {
        offset: u64,
        bytes: u64,
    },
    Preallocate {
        end: u64,
    },
    Truncate {
        length: u64,
    },
    /// A sync of a file, with the length of the file.
    Sync {
        length: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
    Replace {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncDirectory,
}

/// One entry of the log. The index of an entry in the log is the number of the operation.
#[derive(Debug, Clone)]
pub struct LoggedOperation {
    /// Index of the file in the order of creation. `None` for the directory, or for a file that
    /// does not exist.
    pub file: Option<usize>,
    pub operation: Operation,
    /// The result that the caller got.
    pub result: Result<(), io::ErrorKind>,
}

#[derive(Debug)]
struct SimulatedDisk {
    inodes: Vec<SimulatedInode>,
    directory: SimulatedDirectory,
    /// Files without a name that may still be open.
    removed: Vec<usize>,
    capacity: u64,
    others: OtherUsage,
    /// Limit of the space that the files of this storage may take, in bytes. The free space that
    /// the storage reports does not take this limit into account.
    quota: u64,
    /// Limit of the number of files.
    files_max: usize,
    log: Vec<LoggedOperation>,
    failures: BTreeMap<usize, InjectedFailure>,
    crash: Option<(usize, CrashPoint)>,
    crashed: bool,
    immutable: BTreeSet<String>,
    listing_failure: Option<InjectedFailure>,
    /// Whether opening a file fails because no descriptors are available. Files that are already
    /// open keep working.
    descriptors_exhausted: bool,
    random: SimulationRandom,
}

/// The space that other programs occupy on the disk.
#[derive(Debug, Clone, Copy, Default)]
struct OtherUsage {
    held: u64,
    wanted: u64,
    is_greedy: bool,
}

/// The injected result of an operation.
#[derive(Debug, Clone, Copy)]
enum InjectedResult {
    Succeeds,
    Fails(InjectedFailure),
    Crashes,
}

impl SimulatedStorage {
    /// Creates an empty directory on an unlimited disk.
    pub fn new(seed: u64) -> Self {
        Self::with_files(BTreeMap::new(), seed)
    }

    fn with_files(files: BTreeMap<String, Vec<u8>>, seed: u64) -> Self {
        let names: BTreeMap<String, usize> = files.keys().cloned().zip(0..).collect();
        let disk = SimulatedDisk {
            inodes: files.into_values().map(SimulatedInode::with_content).collect(),
            directory: SimulatedDirectory::with_names(names),
            removed: Vec::new(),
            capacity: u64::MAX >> 1,
            others: OtherUsage::default(),
            quota: u64::MAX >> 1,
            files_max: usize::MAX,
            log: Vec::new(),
            failures: BTreeMap::new(),
            crash: None,
            crashed: false,
            immutable: BTreeSet::new(),
            listing_failure: None,
            descriptors_exhausted: false,
            random: SimulationRandom::new(seed),
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Limits the size of the disk to this number of bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().capacity = bytes;
    }

    /// Simulates other programs that occupy `bytes` bytes of the disk, or all free space if less is
    /// free. If the programs are greedy, they also occupy space that is freed later, up to this
    /// number of bytes, before the next operation of this storage.
    pub fn set_others(&self, bytes: u64, is_greedy: bool) {
        let mut disk = self.disk();
        (disk.others.wanted, disk.others.is_greedy) = (bytes, is_greedy);
        disk.let_others_grow();
    }

    /// Limits the space that the files of this storage may take, in bytes (EDQUOT). The free space
    /// that the storage reports does not take this limit into account.
    pub fn set_quota(&self, bytes: u64) {
        self.disk().quota = bytes;
    }

    /// Limits the number of files (ENOSPC), as if other programs used all other inodes.
    pub fn set_files_max(&self, files: usize) {
        self.disk().files_max = files;
    }

    /// Refuses all later removals of a file (EPERM), as if the file were immutable.
    pub fn refuse_removal(&self, name: &str) {
        self.disk().immutable.insert(name.to_owned());
    }

    /// Makes every listing and every query of the free space fail. The value `None` makes them
    /// succeed again. Files that are already open keep working.
    pub fn set_listing_failure(&self, failure: Option<InjectedFailure>) {
        self.disk().listing_failure = failure;
    }

    /// Sets whether opening a file fails because no descriptors are available (EMFILE). Files that
    /// are already open keep working.
    pub fn set_descriptors_exhausted(&self, lacks: bool) {
        self.disk().descriptors_exhausted = lacks;
    }

    /// Makes the operation with this number fail.
    pub fn fail(&self, operation: usize, failure: impl Into<InjectedFailure>) {
        self.disk().failures.insert(operation, failure.into());
    }

    /// Simulates a crash at the operation with this number. After the crash, every call on every
    /// handle fails.
    pub fn crash_at(&self, operation: usize, moment: CrashPoint) {
        self.disk().crash = Some((operation, moment));
    }

    pub fn has_crashed(&self) -> bool {
        self.disk().crashed
    }

    /// Returns whether the error means that the storage has crashed.
    pub fn is_crash(error: &io::Error) -> bool {
        error.raw_os_error() == Some(CRASHED)
    }

    /// Returns all operations so far. If there was a crash, returns all operations up to the crash.
    pub fn log(&self) -> Vec<LoggedOperation> {
        self.disk().log.clone()
    }

    /// Returns the file names that the process sees, or that it saw last before a crash.
    pub fn names(&self) -> Vec<String> {
        self.disk().directory.names.keys().cloned().collect()
    }

    /// Returns the content of a file as the process sees it. After a crash, returns the content
    /// that the process saw last.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        disk.directory.names.get(name).map(|inode| disk.inodes[*inode].bytes())
    }

    /// Returns a storage in a possible state after the crash that happened. If there was no crash,
    /// returns a possible state after a crash at this time. The seed selects one of all possible
    /// states.
    pub fn crash_image(&self, seed: u64, kind: CrashKind) -> Self {
        let disk = self.disk();
        let mut random = SimulationRandom::new(seed);
        let names = match kind {
            CrashKind::ProcessKilled => disk.directory.names.clone(),
            CrashKind::PowerCut => disk.directory.after_power_cut(&mut random),
        };
        let content = |inode: usize| match kind {
            CrashKind::ProcessKilled => disk.inodes[inode].bytes(),
            CrashKind::PowerCut => disk.inodes[inode].after_power_cut(&mut random),
        };
        let contents: Vec<Vec<u8>> = names.values().copied().map(content).collect();
        Self::with_files(names.into_keys().zip(contents).collect(), seed)
    }

    /// Copies all files into a directory of the host.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        let disk = self.disk();
        for (name, inode) in &disk.directory.names {
            std::fs::write(folder.join(name), disk.inodes[*inode].bytes())?;
        }
        Ok(())
    }

    fn disk(&self) -> MutexGuard<'_, SimulatedDisk> {
        self.disk.lock().unwrap()
    }

    fn lock_disk(&self) -> io::Result<MutexGuard<'_, SimulatedDisk>> {
        let disk = self.disk();
        if disk.crashed { Err(crashed()) } else { Ok(disk) }
    }

    fn handle(&self, disk: &SimulatedDisk, inode: usize) -> Arc<dyn StorageFile> {
        let open = Arc::clone(&disk.inodes[inode].handles);
        Arc::new(SimulatedFile { storage: self.clone(), inode, _open: open })
    }

    /// Performs an operation that happens completely or not at all. `check` returns an error if the
    /// operation is impossible.
    fn run_operation(
        &self,
        file: impl FnOnce(&SimulatedDisk) -> Option<usize>,
        operation: Operation,
        check: impl FnOnce(&SimulatedDisk) -> io::Result<()>,
        act: impl FnOnce(&mut SimulatedDisk),
    ) -> io::Result<()> {
        let mut disk = self.disk();
        let fate = disk.begin()?;
        let file = file(&disk);
        let result = check(&disk).and_then(|()| {
            let happens = match fate {
                InjectedResult::Succeeds => true,
                InjectedResult::Fails(_) => false,
                InjectedResult::Crashes => disk.random.below(2) == 1,
            };
            if happens {
                act(&mut disk);
            }
            fate.result()
        });
        disk.end(file, operation, result)
    }
}

fn crashed() -> io::Error {
    io::Error::from_raw_os_error(CRASHED)
}

impl InjectedResult {
    fn result(self) -> io::Result<()> {
        match self {
            Self::Succeeds => Ok(()),
            Self::Fails(failure) => Err(failure.into()),
            Self::Crashes => Err(crashed()),
        }
    }
}

impl SimulatedDisk {
    fn begin(&mut self) -> io::Result<InjectedResult> {
        let number = self.log.len();
        if self.others.is_greedy {
            self.let_others_grow();
        }
        if self.crashed || self.crash == Some((number, CrashPoint::Before)) {
            self.crashed = true;
            return Err(crashed());
        }
        Ok(match self.failures.get(&number) {
            _ if self.crash == Some((number, CrashPoint::Within)) => InjectedResult::Crashes,
            Some(failure) => InjectedResult::Fails(*failure),
            None => InjectedResult::Succeeds,
        })
    }

    fn end<T>(&mut self, file: Option<usize>, operation: Operation, result: io::Result<T>) -> io::Result<T> {
        self.crashed = self.crash.is_some_and(|(number, _)| number == self.log.len());
        let outcome = result.as_ref().map(|_| ()).map_err(io::Error::kind);
        self.log.push(LoggedOperation { file, operation, result: outcome });
        result
    }

    fn take_descriptor(&self) -> io::Result<()> {
        if self.descriptors_exhausted { Err(io::Error::from_raw_os_error(TOO_MANY_FILES)) } else { Ok(()) }
    }

    fn check_listing(&self) -> io::Result<()> {
        self.listing_failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.directory.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the space that all files occupy, including removed files that are still open.
    fn used(&self) -> u64 {
        let named = self.directory.names.values();
        let removed = self.removed.iter().filter(|inode| self.is_open(**inode));
        named.chain(removed).map(|inode| self.inodes[*inode].allocated()).sum()
    }

    fn is_open(&self, inode: usize) -> bool {
        Arc::strong_count(&self.inodes[inode].handles) > 1
    }

    /// Records that a file has lost its name. The space of a file that is no longer open is freed.
    fn note_removed(&mut self, inode: usize) {
        let mut removed = std::mem::take(&mut self.removed);
        removed.push(inode);
        removed.retain(|inode| self.is_open(*inode));
        self.removed = removed;
    }

    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used()).saturating_sub(self.others.held)
    }

    fn let_others_grow(&mut self) {
        let OtherUsage { held, wanted, .. } = self.others;
        self.others.held = wanted.min(held + self.free());
    }

    /// Returns the maximum length to which a file can grow in the free space, and the error code of
    /// a write beyond this length.
    fn max_length(&self, inode: usize) -> (u64, i32) {
        let (free, quota) = (self.free(), self.quota.saturating_sub(self.used()));
        let code = if quota < free { QUOTA_EXCEEDED } else { NO_SPACE };
        (self.inodes[inode].allocated() + free.min(quota) / PAGE_BYTES * PAGE_BYTES, code)
    }
}

impl Storage for SimulatedStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.run_operation(
            |disk| (!disk.directory.names.contains_key(name)).then_some(disk.inodes.len()),
            Operation::Create { name: name.to_owned() },
            |disk| {
                disk.take_descriptor()?;
                if disk.directory.names.contains_key(name) {
                    Err(io::ErrorKind::AlreadyExists.into())
                } else if disk.directory.names.len() >= disk.files_max {
                    Err(io::Error::from_raw_os_error(NO_SPACE))
                } else {
                    Ok(())
                }
            },
            |disk| {
                disk.inodes.push(SimulatedInode::default());
                disk.directory.change(disk.inodes.len() - 1, None, Some(name));
            },
        )?;
        let disk = self.disk();
        let inode = disk.find(name)?;
        Ok(self.handle(&disk, inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let disk = self.lock_disk()?;
        disk.take_descriptor()?;
        let inode = disk.find(name)?;
        Ok(self.handle(&disk, inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.run_operation(
            |disk| disk.find(from).ok(),
            Operation::Rename { from: from.to_owned(), to: to.to_owned() },
            |disk| {
                disk.find(from)?;
                if disk.directory.names.contains_key(to) {
                    Err(io::ErrorKind::AlreadyExists.into())
                } else {
                    Ok(())
                }
            },
            |disk| disk.directory.change(disk.directory.names[from], Some(from), Some(to)),
        )
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.run_operation(
            |disk| disk.find(one).ok(),
            Operation::Exchange { one: one.to_owned(), other: other.to_owned() },
            |disk| disk.find(one).and(disk.find(other)).map(drop),
            |disk| {
                let names = &disk.directory.names;
                let (inode, back) = (names[one], names[other]);
                disk.directory.change_with(inode, Some(one), Some(other), Displaced::Swapped(back));
            },
        )
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.run_operation(
            |disk| disk.find(from).ok(),
            Operation::Replace { from: from.to_owned(), to: to.to_owned() },
            |disk| disk.find(from).map(drop),
            |disk| {
                let inode = disk.directory.names[from];
                let displaced = disk.directory.names.get(to).copied();
                disk.directory.change_with(inode, Some(from), Some(to), Displaced::Removed);
                displaced
                    .filter(|other| *other != inode)
                    .into_iter()
                    .for_each(|other| disk.note_removed(other));
            },
        )
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.run_operation(
            |disk| disk.find(name).ok(),
            Operation::Remove { name: name.to_owned() },
            |disk| {
                disk.find(name)?;
                let is_refused = disk.immutable.contains(name);
                if is_refused { Err(io::Error::from_raw_os_error(NOT_PERMITTED)) } else { Ok(()) }
            },
            |disk| {
                let inode = disk.directory.names[name];
                disk.directory.change(inode, Some(name), None);
                disk.note_removed(inode);
            },
        )
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.run_operation(
            |_| None,
            Operation::SyncDirectory,
            |_| Ok(()),
            |disk| {
                disk.directory.sync();
            },
        )
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        let disk = self.lock_disk()?;
        disk.take_descriptor()?;
        disk.check_listing()?;
        let entry = |(name, inode): (&String, &usize)| FileEntry {
            name: name.clone(),
            allocated: disk.inodes[*inode].allocated(),
            identity: *inode as u64,
        };
        Ok(disk.directory.names.iter().map(entry).collect())
    }

    fn is_name_of(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        let identity = file.identity()?;
        let disk = self.lock_disk()?;
        disk.check_listing()?;
        Ok(disk.directory.names.get(name).is_some_and(|inode| (0, *inode as u64) == identity))
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let disk = self.lock_disk()?;
        disk.check_listing()?;
        Ok(DiskSpace { total: disk.capacity, available: disk.free() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::io::IoSlice;

    use super::*;

    const SECTOR: usize = 512;

    fn append(file: &Arc<dyn StorageFile>, bytes: &[u8]) -> io::Result<usize> {
        file.append(&[IoSlice::new(bytes)])
    }

    /// Returns `length` non-zero bytes, whose values depend on their offset in a file.
    fn filled(offset: usize, length: usize) -> Vec<u8> {
        (offset..offset + length).map(|at| u8::try_from(at % 251 + 1).unwrap()).collect()
    }

    /// The expected result of a script of operations: the names, the synced content and the full
    /// content of the files.
    #[derive(Debug, Default)]
    struct Model {
        files: Vec<(String, usize, usize, bool)>, // name, synced, length, entry synced
    }

    proptest! {
        // Proves that synced data is in every crash image, that unsynced data is new, zero or
        // missing, and that no data is lost if only the process is killed.
        #[test]
        fn images_are_possible(
            steps in proptest::collection::vec((0_u8..7, 0_usize..3, 1_usize..2000), 1..40),
            seed: u64,
        ) {
            let storage = SimulatedStorage::new(seed);
            let mut model = Model::default();
            let mut handles = Vec::new();
            for (step, which, length) in steps {
                if step == 0 || handles.is_empty() {
                    let name = format!("{}.a", handles.len());
                    handles.push(storage.create(&name).unwrap());
                    model.files.push((name, 0, 0, false));
                    continue;
                }
                let at = which % handles.len();
                let (name, synced, content, _) = &mut model.files[at];
                match step {
                    1..=3 => {
                        append(&handles[at], &filled(*content, length)).unwrap();
                        *content += length;
                    }
                    4 => {
                        handles[at].sync().unwrap();
                        *synced = *content;
                    }
                    5 => {
                        let to = name.replace(".a", ".b");
                        prop_assert_eq!(storage.rename(name, &to).is_ok(), *name != to);
                        *name = to;
                    }
                    _ => {
                        storage.sync_directory().unwrap();
                        model.files.iter_mut().for_each(|file| file.3 = true);
                    }
                }
            }
            let killed = storage.crash_image(seed, CrashKind::ProcessKilled);
            for (name, _, length, _) in &model.files {
                prop_assert_eq!(killed.content(name), Some(filled(0, *length)));
            }
            for seed in 0..8 {
                let image = storage.crash_image(seed, CrashKind::PowerCut);
                prop_assert_eq!(image.names(), storage.crash_image(seed, CrashKind::PowerCut).names());
                for (name, synced, length, has_entry) in &model.files {
                    let names = [name.clone(), name.replace(".b", ".a")];
                    let found: BTreeSet<&String> = names.iter().filter(|name| image.content(name).is_some()).collect();
                    prop_assert!(found.len() <= 1, "never under both names");
                    prop_assert!(!has_entry || found.len() == 1, "never under none");
                    let Some(content) = found.first().and_then(|name| image.content(name)) else { continue };
                    prop_assert!((*synced..=*length).contains(&content.len()));
                    let expected = filled(0, content.len());
                    prop_assert_eq!(&content[..*synced], &expected[..*synced]);
                    prop_assert!(content.iter().zip(&expected).all(|(byte, expected)| byte == expected || *byte == 0));
                }
            }
        }
    }

    // Proves that unsynced sectors reach the disk in any order. Extreme cases also occur: no
    // sector, all sectors, and a part of a sector.
    #[test]
    fn sectors_arrive_in_any_order() {
        let storage = SimulatedStorage::new(1);
        let file = storage.create("a").unwrap();
        storage.sync_directory().unwrap();
        append(&file, &filled(0, 2048)).unwrap();
        let images: Vec<Vec<u8>> = (0..500)
            .map(|seed| storage.crash_image(seed, CrashKind::PowerCut).content("a").unwrap())
            .collect();
        assert!(images.iter().any(Vec::is_empty));
        assert!(images.iter().any(|image| *image == filled(0, 2048)));
        assert!(images.iter().any(|image| image.len() == 2048 && image[0] == 0 && image[2047] != 0));
        assert!(images.iter().any(|image| image.len() % SECTOR != 0));
        let is_torn = |sector: &[u8]| sector[0] != 0 && sector[SECTOR - 1] == 0;
        assert!(images.iter().any(|image| image.chunks_exact(SECTOR).any(is_torn)));
    }

    // Proves that after a failed sync, a later sync may succeed while data is still missing on
    // disk.
    #[test]
    fn a_failed_sync_may_have_dropped_sectors() {
        let storage = SimulatedStorage::new(3);
        let file = storage.create("a").unwrap();
        storage.sync_directory().unwrap();
        append(&file, &filled(0, SECTOR)).unwrap();
        file.sync().unwrap();
        append(&file, &filled(SECTOR, 16 * SECTOR)).unwrap();
        storage.fail(storage.log().len(), 5);
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        file.sync().unwrap();
        assert_eq!(storage.content("a").unwrap(), filled(0, 17 * SECTOR), "the page cache still has it");
        let image = storage.crash_image(0, CrashKind::PowerCut).content("a").unwrap();
        let lost = image.chunks_exact(SECTOR).filter(|sector| sector.iter().all(|byte| *byte == 0)).count();
        assert!(lost > 0 && lost < 16, "{lost}");
        assert_eq!(image[..SECTOR], filled(0, SECTOR));
    }

    // Proves that after a crash every handle fails. Cases: a crash before, within and after the
    // chosen operation.
    #[test]
    fn a_crash_ends_every_handle() {
        for (moment, least, most, succeeds) in [
            (CrashPoint::Before, 0, 0, false),
            (CrashPoint::Within, 0, 100, false),
            (CrashPoint::After, 100, 100, true),
        ] {
            let storage = SimulatedStorage::new(5);
            let file = storage.create("a").unwrap();
            storage.crash_at(1, moment);
            assert_eq!(append(&file, &[7; 100]).is_ok(), succeeds);
            assert!(storage.has_crashed());
            let errors = [
                append(&file, b"x").unwrap_err(),
                file.length().unwrap_err(),
                file.sync().unwrap_err(),
                storage.sync_directory().unwrap_err(),
                storage.entries().unwrap_err(),
            ];
            assert!(errors.iter().all(SimulatedStorage::is_crash));
            let image = storage.crash_image(0, CrashKind::ProcessKilled);
            assert!((least..=most).contains(&image.content("a").unwrap().len()));
            image.open("a").unwrap();
        }
    }

    // Proves that unsynced truncations and removals may be undone, and that one of the two files of
    // a reused name is never lost.
    #[test]
    fn cuts_and_removals_may_not_arrive() {
        let storage = SimulatedStorage::new(1);
        let file = storage.create("a").unwrap();
        append(&file, &filled(0, 1000)).unwrap();
        file.sync().unwrap();
        storage.sync_directory().unwrap();
        file.truncate(300).unwrap();
        let lengths: BTreeSet<usize> = (0..100)
            .map(|seed| storage.crash_image(seed, CrashKind::PowerCut).content("a").unwrap().len())
            .collect();
        assert_eq!(lengths, BTreeSet::from([300, 1000]));
        storage.rename("a", "b").unwrap();
        storage.create("a").unwrap();
        let names: BTreeSet<Vec<String>> =
            (0..100).map(|seed| storage.crash_image(seed, CrashKind::PowerCut).names()).collect();
        let names: Vec<String> = names.into_iter().map(|names| names.join("+")).collect();
        assert_eq!(names, ["a", "a+b", "b"]);
        storage.remove("b").unwrap();
        assert!((0..100).any(|seed| storage.crash_image(seed, CrashKind::PowerCut).names() == ["a"]));
    }

    // Proves that space is counted in pages and includes preallocation, and that a full disk causes
    // first a short write, and then ENOSPC.
    #[test]
    fn a_full_medium_takes_what_fits() {
        let storage = SimulatedStorage::new(1);
        storage.set_capacity(8 * PAGE_BYTES + 100);
        let available = || storage.space().unwrap().available / PAGE_BYTES;
        let file = storage.create("a").unwrap();
        append(&file, &[1; 10]).unwrap();
        assert_eq!((file.allocated().unwrap(), available()), (PAGE_BYTES, 7));
        file.preallocate(3 * PAGE_BYTES - 5).unwrap();
        assert_eq!((file.allocated().unwrap(), file.length().unwrap(), available()), (3 * PAGE_BYTES, 10, 5));
        let other = storage.create("b").unwrap();
        assert_eq!(other.preallocate(6 * PAGE_BYTES).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(available(), 0);
        other.truncate(0).unwrap();
        assert_eq!(available(), 5);
        assert_eq!(append(&file, &vec![2; 9 * 4096]).unwrap(), 8 * 4096 - 10, "short");
        assert_eq!(append(&file, &[2]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(
            storage.entries().unwrap().iter().map(|entry| entry.allocated).sum::<u64>(),
            8 * PAGE_BYTES
        );
        storage.remove("a").unwrap();
        assert_eq!(available(), 0, "still open");
        drop(file);
        assert_eq!(available(), 8);
    }

    // Proves that the log shows each operation and its result, and that a copy on the host matches.
    #[test]
    fn the_log_and_the_copy_show_what_was_done() {
        let storage = SimulatedStorage::new(1);
        storage.fail(1, io::ErrorKind::StorageFull);
        let file = storage.create("a").unwrap();
        assert_eq!(append(&file, &[9; 64]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        append(&file, &[9; 6]).unwrap();
        file.sync().unwrap();
        let log = storage.log();
        let Operation::Append { offset: 0, bytes } = log[1].operation else { panic!("{log:?}") };
        assert_eq!(log[1].result, Err(io::ErrorKind::StorageFull));
        assert_eq!(log[2].operation, Operation::Append { offset: bytes, bytes: 6 });
        assert_eq!(log[3].operation, Operation::Sync { length: bytes + 6 });
        assert!(log.iter().all(|event| event.file == Some(0)));
        let folder = tempfile::tempdir().unwrap();
        storage.write_to(folder.path()).unwrap();
        assert_eq!(Some(std::fs::read(folder.path().join("a")).unwrap()), storage.content("a"));
    }
}
