//! Performance counters of the `perf` source.

use flatcap_os::keywords;

/// Maximum number of processes whose events are counted individually.
pub const PROCESSES_MAX: usize = 16;

keywords! {
    /// An event that the kernel counts, named as in perf(1).
    pub enum PerfEvent {
        /// Processor cycles, whose duration varies with the frequency.
        Cycles = "cycles",
        /// Retired instructions.
        Instructions = "instructions",
        /// Accesses to the last-level cache, on most processors.
        CacheReferences = "cache-references",
        /// Accesses that missed the last-level cache.
        CacheMisses = "cache-misses",
        /// Branches.
        Branches = "branches",
        /// Mispredicted branches.
        BranchMisses = "branch-misses",
        /// Bus cycles.
        BusCycles = "bus-cycles",
        /// Cycles in which the front end delivered no instructions.
        StalledCyclesFrontend = "stalled-cycles-frontend",
        /// Cycles in which the back end accepted no instructions.
        StalledCyclesBackend = "stalled-cycles-backend",
        /// Cycles at a constant frequency.
        RefCycles = "ref-cycles",
        /// CPU time, by the processor's clock.
        CpuClock = "cpu-clock",
        /// Time during which tasks ran.
        TaskClock = "task-clock",
        /// Page faults.
        PageFaults = "page-faults",
        /// Context switches.
        ContextSwitches = "context-switches",
        /// Migrations of tasks to another processor.
        CpuMigrations = "cpu-migrations",
        /// Page faults that needed no disk access.
        MinorFaults = "minor-faults",
        /// Page faults that needed a disk access.
        MajorFaults = "major-faults",
        /// Unaligned accesses that the kernel completed.
        AlignmentFaults = "alignment-faults",
        /// Instructions that the kernel emulated.
        EmulationFaults = "emulation-faults",
        /// Reads of the level-1 data cache.
        L1DcacheLoads = "l1-dcache-loads",
        /// Reads that missed the level-1 data cache.
        L1DcacheLoadMisses = "l1-dcache-load-misses",
        /// Fetches that missed the level-1 instruction cache.
        L1IcacheLoadMisses = "l1-icache-load-misses",
        /// Reads of the last-level cache.
        LlcLoads = "llc-loads",
        /// Reads that missed the last-level cache.
        LlcLoadMisses = "llc-load-misses",
        /// Reads that missed the data TLB and needed a page walk.
        DtlbLoadMisses = "dtlb-load-misses",
        /// Fetches that missed the instruction TLB and needed a page walk.
        ItlbLoadMisses = "itlb-load-misses",
        /// Reads of the memory of another NUMA node.
        NodeLoadMisses = "node-load-misses",
    }
}

/// Settings of the `perf` source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfConfig {
    /// The counted events. The list has at least one entry and no duplicates.
    pub events: Vec<PerfEvent>,
    /// Processes whose events are also counted individually. Each process is specified by its
    /// process id, or by its name in the form of /proc/PID/comm.
    pub processes: Vec<String>,
}
