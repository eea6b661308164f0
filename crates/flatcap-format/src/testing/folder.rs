//! A directory without a lock, quotas or special rights. Such a directory is sufficient to write
//! segments on any system.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};

/// A directory of the file system, accessed only through the standard library.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

#[derive(Debug)]
struct FolderFile(File);

impl Folder {
    fn file(&self, name: &str, options: &mut OpenOptions) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(FolderFile(options.read(true).append(true).open(self.0.join(name))?)))
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the storage that others go through")]
impl Storage for Folder {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.file(name, OpenOptions::new().create_new(true))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.file(name, &mut OpenOptions::new())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if fs::exists(self.0.join(to))? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.replace(from, to)
    }

    fn exchange(&self, _one: &str, _other: &str) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        // Windows cannot sync a directory. The file systems of Windows keep the order in which
        // names change, without a sync.
        if cfg!(unix) { File::open(&self.0)?.sync_all() } else { Ok(()) }
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                let allocated = entry.metadata()?.len();
                entries.push(FileEntry { name, allocated, identity: FileEntry::UNKNOWN });
            }
        }
        Ok(entries)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl ReadAt for FolderFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        self.0.next_stored(offset)
    }
}

impl StorageFile for FolderFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(slices)
    }

    fn preallocate(&self, _end: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        let metadata = self.0.metadata()?;
        let times = FileTimes::new().set_modified(metadata.modified()?).set_accessed(metadata.accessed()?);
        Ok(FileAttributes { times, ..FileAttributes::default() })
    }

    /// Sets only the times, because owners and permissions are not portable.
    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        self.0.set_times(attributes.times)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that files are created, appended to, renamed and removed, and that neither create nor
    // rename replaces a file.
    #[test]
    fn files_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder(directory.path().to_owned());
        let file = folder.create("a").unwrap();
        assert_eq!(file.append(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).unwrap(), 6);
        file.truncate(5).unwrap();
        let mut bytes = [0; 9];
        assert_eq!(folder.open("a").unwrap().read_all_at(&mut bytes, 1).unwrap(), 4);
        assert_eq!(&bytes[..4], b"netw");
        folder.create("b").unwrap();
        assert_eq!(folder.create("a").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(folder.rename("a", "b").unwrap_err().kind(), ErrorKind::AlreadyExists);
        folder.rename("a", "c").unwrap();
        folder.remove("b").unwrap();
        folder.sync_directory().unwrap();
        let entries = folder.entries().unwrap();
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((entry.name.as_str(), entry.allocated), ("c", 5));
    }
}
