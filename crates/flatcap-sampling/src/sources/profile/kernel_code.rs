//! The kernel as a code object to which frames of stacks refer.

use std::sync::Arc;

use flatcap_os::build_id::ElfBuildId;
use flatcap_os::host::HostRoot;
use flatcap_os::kernel_symbols;
use flatcap_tasks::schema::CodeKind;

use super::code_file::CodeFile;

/// File with the kernel's symbols and their addresses.
pub(super) const SYMBOLS: &str = "proc/kallsyms";
/// File with the ELF notes of the running kernel.
pub(super) const NOTES: &str = "sys/kernel/notes";
/// Alignment of the kernel's notes, in bytes.
const NOTES_ALIGNMENT: usize = 4;
/// Name under which the kernel is recorded.
const NAME: &str = "[kernel]";

/// The kernel and its modules.
#[derive(Debug)]
pub(super) struct KernelCode {
    /// The object to which frames in the kernel refer.
    pub(super) object: Arc<CodeFile>,
    base: u64, // first address of the code; 0 if it is not known
}

impl KernelCode {
    /// Reads the identity of this host's kernel. `id` is the id of the kernel's code object.
    pub(super) fn read(host: &HostRoot, id: u64) -> Self {
        let base = kernel_symbols::code_address(&host.path(SYMBOLS)).ok().flatten();
        let mut build_id = None;
        if let Ok(mut notes) = host.open(NOTES)
            && notes.read().is_ok()
        {
            build_id = ElfBuildId::in_notes(notes.content(), NOTES_ALIGNMENT);
        }
        let kind = if base.is_some() { CodeKind::Kernel } else { CodeKind::KernelAddress };
        let object = Arc::new(CodeFile::other(id, kind, NAME, build_id));
        Self { object, base: base.unwrap_or(0) }
    }

    /// Returns the offset of an address from the first address of the kernel's code. Modules may
    /// lie at addresses below the kernel. The offsets of such modules are negative, and wrap around
    /// as 64-bit numbers.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.base)
    }
}

#[cfg(test)]
mod tests {
    use flatcap_os::build_id::FileContentId;

    use super::*;
    use crate::sources::tests::host_with;

    // Proves that offsets are relative to the start of the kernel's code if this start is known,
    // and are addresses otherwise.
    #[test]
    fn offsets_are_from_the_begin_of_the_code() {
        let host = host_with(&[(SYMBOLS, "ffffffff81000000 T _text\n")]);
        let kernel = KernelCode::read(&HostRoot::new(host.path()), 0);
        assert_eq!((kernel.object.kind, kernel.offset_of(0xFFFF_FFFF_8100_0010)), (CodeKind::Kernel, 16));
        let host = host_with(&[(SYMBOLS, "0000000000000000 T _text\n")]);
        let kernel = KernelCode::read(&HostRoot::new(host.path()), 0);
        assert_eq!((kernel.object.kind, kernel.offset_of(7)), (CodeKind::KernelAddress, 7));
    }

    // Proves that this kernel has a build id, if it has notes.
    #[test]
    fn this_kernel_has_a_build_id() {
        let host = HostRoot::new("/");
        if host.open(NOTES).is_err() {
            return println!("skipped: this kernel has no /{NOTES}");
        }
        let kernel = KernelCode::read(&host, 0);
        assert!(
            matches!(kernel.object.content(), Some(FileContentId::BuildId(id)) if id.as_bytes().len() == 20)
        );
    }
}
