//! Locations of code in the form in which recordings store them.

use serde::Deserialize;

use crate::build_id::BuildId;

/// The kind of an object that contains code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// An executable or a library. The offsets are offsets in the file.
    File,
    /// The kernel and its modules. The offsets are relative to the symbol `_text`.
    Kernel,
    /// The kernel, if the address of `_text` was not known. In this case, the offsets are
    /// addresses.
    KernelAddress,
    /// Memory that is not mapped from a file.
    Unknown,
}

/// A file with code, the kernel, or memory without a file, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// Path of the file, as seen by the process that mapped the file. For an object that is not a
    /// file, this is a name in brackets.
    pub path: String,
    /// The object's build id, if it was recorded.
    pub build_id: Option<BuildId>,
    /// The version of a file without a build id, if it was recorded.
    pub version: Option<ObjectVersion>,
    /// The process that owned the memory, if the object is memory without a file.
    pub process: Option<CodeProcess>,
    /// The boot id of the host, for kernels and processes. Module addresses and process ids change
    /// with each boot.
    pub boot_id: Option<String>,
}

/// The size and the modification time of a file. Together with the path, they identify the content
/// of a file without a build id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub struct ObjectVersion {
    /// The file's size.
    pub bytes: u64,
    /// Time of the last modification of the file, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A process from which samples were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub struct CodeProcess {
    /// Process id.
    pub id: u32,
    /// A time at which the process ran, in monotonic nanoseconds.
    pub first_ns: u64,
}

/// A location in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeLocation {
    /// The meaning of the offset depends on the kind of the object.
    pub offset: u64,
    /// Whether the offset is the return address of a call. A return address may already belong to
    /// the next function, so the byte before it is looked up.
    pub is_return: bool,
}

impl ObjectKey {
    /// Returns the name for display, which is the name of the file without its directories.
    pub(crate) fn short_name(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match (name, self.kind) {
            (_, ObjectKind::Kernel | ObjectKind::KernelAddress) => "[kernel]",
            ("", _) => "[unknown]",
            (name, _) => name,
        }
    }

    /// Returns the text that is shown for a location without a known function, of the form
    /// `name+0xoffset`. For memory without a file, returns only the name, because its addresses are
    /// meaningless outside of its process.
    pub(crate) fn unnamed(&self, location: CodeLocation) -> String {
        match self.kind {
            ObjectKind::Unknown => self.short_name().to_owned(),
            _ => format!("{}+{:#x}", self.short_name(), location.offset),
        }
    }
}

impl CodeLocation {
    /// Returns the offset to look up.
    pub(crate) fn lookup_offset(self) -> u64 {
        self.offset.saturating_sub(u64::from(self.is_return))
    }
}
