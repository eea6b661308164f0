//! The functions of a kernel and of its modules, from all sources of names.

use crate::kernel_symbols::KernelSymbols;
use crate::object_symbols::{ObjectSymbols, RecordedOffset};

/// Names of functions of a recorded kernel.
#[derive(Debug)]
pub(crate) struct KernelNames {
    image: Option<KernelImage>,
    /// The symbol list of the running kernel, if the host has not rebooted since the recording.
    /// Modules are at the recorded addresses only during the recorded boot.
    of_boot: Option<KernelSymbols>,
}

/// The source of the kernel's own functions, which have the same offsets in each boot.
#[derive(Debug)]
enum KernelImage {
    Files(ObjectSymbols),
    List(KernelSymbols),
}

impl KernelNames {
    /// Takes the kernel's own functions from files.
    pub(crate) fn of_files(files: ObjectSymbols, of_boot: Option<KernelSymbols>) -> Self {
        Self { image: Some(KernelImage::Files(files)), of_boot }
    }

    /// Takes the kernel's own functions from a symbol list that may come from any boot of this
    /// kernel.
    pub(crate) fn of_list(list: KernelSymbols, of_boot: Option<KernelSymbols>) -> Self {
        Self { image: Some(KernelImage::List(list)), of_boot }
    }

    /// Takes all functions from the list of the recorded boot.
    pub(crate) fn of_boot(list: KernelSymbols) -> Self {
        Self { image: None, of_boot: Some(list) }
    }

    /// Returns the names of the functions at an offset from `_text`, or no names if the functions
    /// are not known.
    pub(crate) fn names_at_offset(&self, offset: u64) -> Vec<String> {
        let names = match &self.image {
            Some(KernelImage::Files(files)) => files.names_at(RecordedOffset::InMemory(offset)),
            Some(KernelImage::List(list)) => one(list.name_at_offset(offset, false)),
            None => Vec::new(),
        };
        if names.is_empty() {
            one(self.of_boot.as_ref().and_then(|list| list.name_at_offset(offset, true)))
        } else {
            names
        }
    }

    /// Returns the names of the functions at an address of the recorded boot.
    pub(crate) fn names_at_address(&self, address: u64) -> Vec<String> {
        one(self.of_boot.as_ref().and_then(|list| list.name_at(address, true)))
    }

    /// Returns the approximate memory that this value takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let image = match &self.image {
            Some(KernelImage::Files(files)) => files.memory_bytes(),
            Some(KernelImage::List(list)) => list.memory_bytes(),
            None => 0,
        };
        image + self.of_boot.as_ref().map_or(0, KernelSymbols::memory_bytes)
    }
}

fn one(name: Option<&str>) -> Vec<String> {
    name.map(str::to_owned).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> KernelSymbols {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, text).unwrap();
        KernelSymbols::read(&path).unwrap()
    }

    const MAP: &str = "9000 T _text\n9000 T by_map\n9100 B _end\n";
    const RUNNING: &str = "19000 T _text\n19000 T by_list\n19100 B _end\n20000 t send\t[driver]\n";

    // Proves that the files that the user named give the names of the kernel's own functions. If
    // the recorded boot still runs, the list of the running kernel gives the missing names.
    #[test]
    fn modules_are_named_beside_an_image() {
        let names = |names: &KernelNames| [0x80, 0x7010].map(|offset| names.names_at_offset(offset).concat());
        let both = KernelNames::of_list(list(MAP), Some(list(RUNNING)));
        assert_eq!(names(&both), ["by_map", "send"]);
        assert_eq!(names(&KernelNames::of_list(list(MAP), None)), ["by_map", ""]);
        assert_eq!(names(&KernelNames::of_list(list(RUNNING), None)), ["by_list", ""]);
        let of_boot = KernelNames::of_boot(list(RUNNING));
        assert_eq!(names(&of_boot), ["by_list", "send"]);
        assert_eq!(of_boot.names_at_address(0x2_0010), ["send"]);
        assert_eq!(KernelNames::of_list(list(RUNNING), None).names_at_address(0x2_0010), [""; 0]);
        assert!(both.memory_bytes() > of_boot.memory_bytes() && of_boot.memory_bytes() > 0);
    }
}
