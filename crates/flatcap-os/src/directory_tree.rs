//! A directory whose subdirectories contain files.

use std::io;
use std::path::{Path, PathBuf};

use flatcap_format::storage::linux::Directory;
use rustix::fs::FileType;

use super::storage::DataDirectory;

/// Mode of a new directory, with full access for the owner and read access for the group.
const DIRECTORY_MODE: u32 = 0o750;

/// An open directory whose subdirectories contain files. All operations apply to the directory that
/// was opened.
#[derive(Debug)]
pub struct DirectoryTree {
    path: PathBuf,
    directory: Directory,
}

impl DirectoryTree {
    /// Opens a directory, creating it if missing.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn create_all(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), directory: Directory::create(path, DIRECTORY_MODE)? })
    }

    /// Opens an existing directory.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn open_existing(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), directory: Directory::open(path)? })
    }

    /// Returns the names of the subdirectories, excluding symbolic links.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = self.directory.names()?;
        names.retain(|name| {
            let status = self.directory.stat(name);
            status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory)
        });
        Ok(names)
    }

    /// Creates a subdirectory, which must not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, or any error of the underlying system call.
    pub fn create(&self, name: &str) -> io::Result<()> {
        self.directory.create_directory(name, DIRECTORY_MODE)
    }

    /// Opens a subdirectory. Does not lock the files of the subdirectory.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn open(&self, name: &str) -> io::Result<DataDirectory> {
        Ok(DataDirectory::unlocked(&self.path.join(name), self.directory.directory(name)?))
    }

    /// Renames a subdirectory. Never replaces an existing subdirectory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }

    /// Removes a subdirectory with its files. Fails if the subdirectory contains a directory.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let directory = self.directory.directory(name)?;
        for file in directory.names()? {
            directory.remove(&file)?;
        }
        self.directory.remove_directory(name)
    }

    /// Syncs the directory to disk, so that the names of its subdirectories are durable.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
}
