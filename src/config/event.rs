//! Which performance counters are there?

use super::word::words;

/// Most processes that are counted one by one.
pub const PROCESSES_MAX: usize = 16;

words! {
    /// An event that the kernel counts, in the words of perf(1).
    pub enum PerfEvent {
        /// Processor cycles; their length varies with the frequency.
        Cycles = "cycles",
        /// Instructions that were completed.
        Instructions = "instructions",
        /// Accesses to the last cache, by most processors' reckoning.
        CacheReferences = "cache-references",
        /// Accesses that the last cache could not serve.
        CacheMisses = "cache-misses",
        /// Branches.
        Branches = "branches",
        /// Branches that were foretold wrong.
        BranchMisses = "branch-misses",
        /// Cycles of the bus.
        BusCycles = "bus-cycles",
        /// Cycles in which the front end had nothing to offer.
        StalledCyclesFrontend = "stalled-cycles-frontend",
        /// Cycles in which the back end could not take more.
        StalledCyclesBackend = "stalled-cycles-backend",
        /// Cycles at a constant frequency.
        RefCycles = "ref-cycles",
        /// Time on the processor, by its clock.
        CpuClock = "cpu-clock",
        /// Time that tasks ran.
        TaskClock = "task-clock",
        /// Page faults.
        PageFaults = "page-faults",
        /// Switches from one task to another.
        ContextSwitches = "context-switches",
        /// Tasks that were moved to another processor.
        CpuMigrations = "cpu-migrations",
        /// Page faults that needed no disk.
        MinorFaults = "minor-faults",
        /// Page faults that needed the disk.
        MajorFaults = "major-faults",
        /// Unaligned accesses that the kernel completed.
        AlignmentFaults = "alignment-faults",
        /// Instructions that the kernel emulated.
        EmulationFaults = "emulation-faults",
        /// Reads of the first data cache.
        L1DcacheLoads = "l1-dcache-loads",
        /// Reads that the first data cache could not serve.
        L1DcacheLoadMisses = "l1-dcache-load-misses",
        /// Fetches that the first instruction cache could not serve.
        L1IcacheLoadMisses = "l1-icache-load-misses",
        /// Reads of the last cache.
        LlcLoads = "llc-loads",
        /// Reads that the last cache could not serve.
        LlcLoadMisses = "llc-load-misses",
        /// Reads whose address needed a walk of the page table.
        DtlbLoadMisses = "dtlb-load-misses",
        /// Fetches whose address needed a walk of the page table.
        ItlbLoadMisses = "itlb-load-misses",
        /// Reads of another node's memory.
        NodeLoadMisses = "node-load-misses",
    }
}

/// What `perf` counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Perf {
    /// The events; never empty, none twice.
    pub events: Vec<PerfEvent>,
    /// Processes that are counted one by one: numbers, or names as in /proc/PID/comm.
    pub processes: Vec<String>,
}
