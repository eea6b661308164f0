//! The memory of sources that read perf rings, which consists of the kernel's rings and copies of
//! their content.

use flatcap_os::host::HostRoot;
use flatcap_os::perf_batch::BatchLimits;
use flatcap_os::perf_ring::PerfRing;

use super::core_list::{ONLINE, parse_core_list};

/// Memory of one kind that a source uses while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingMemory {
    /// Number of buffers.
    pub count: usize,
    /// The kind of buffer, including the name of the source.
    pub holder: &'static str,
    /// Size of all buffers together, in bytes.
    pub bytes: usize,
}

/// Names, size and limits of the rings of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingSizes {
    /// Names by which operators know the rings and the copies of their content.
    pub(super) holders: [&'static str; 2],
    /// Size of the ring of a CPU, in bytes.
    pub(super) ring_bytes: usize,
    /// Limits of the data that is copied in one step.
    pub(super) limits: BatchLimits,
}

impl RingSizes {
    /// Returns the memory for the online CPUs of the host. If the host has no list of CPUs, the
    /// source cannot be opened and needs no memory.
    pub(super) fn memory(self, host: &HostRoot) -> [RingMemory; 2] {
        let cpus = online_cpus(host);
        let [rings, copies] = self.holders;
        let rings_bytes = PerfRing::memory_bytes(self.ring_bytes).saturating_mul(cpus);
        let copied_bytes = self.limits.copied_bytes_max(cpus, self.ring_bytes);
        [
            RingMemory { count: cpus, holder: rings, bytes: rings_bytes },
            RingMemory { count: 1, holder: copies, bytes: copied_bytes },
        ]
    }
}

fn online_cpus(host: &HostRoot) -> usize {
    let mut numbers = Vec::new();
    if let Ok(mut online) = host.open(ONLINE)
        && online.read().is_ok()
    {
        parse_core_list(online.content(), &mut numbers);
    }
    numbers.len()
}
