//! Settings of a sampler group's thread.

use flatcap_os::keywords;

keywords! {
    /// A sampler group, which is one thread and the sources that it reads.
    pub enum GroupName {
        /// Sources with a period of up to 10 ms.
        Fast = "fast",
        /// All other sources that do not block.
        Slow = "slow",
        /// Sources that a server, a device or anything else besides the kernel may delay. Each of
        /// these sources is read by a thread of its own, with a timeout.
        Blocking = "blocking",
    }
}

keywords! {
    /// The precision with which a sampler thread meets its ticks.
    pub enum Timing {
        /// The kernel may wake the thread about 50 us late, which saves power.
        Relaxed = "relaxed",
        /// The thread has a timer slack of 1 ns. The thread is half as late as with `Relaxed`, at
        /// the cost of more wake-ups.
        Precise = "precise",
        /// The thread has the same timer slack as with `Precise`, but it wakes up early and spins
        /// on the clock until the tick. The thread is less than 1 us late, at the cost of the CPU
        /// time of the spinning.
        Spin = "spin",
    }
}

/// The scheduling of a group's thread by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSettings {
    /// The precision with which the thread meets its ticks.
    pub timing: Timing,
    /// The thread's real-time priority (`SCHED_FIFO`), 1 to 99, or 0 for ordinary scheduling.
    pub priority: u8,
    /// Maximum share of a CPU that the thread uses with real-time priority, in basis points. Above
    /// it, the thread continues with ordinary priority.
    pub realtime_share: u32,
    /// The CPUs on which the thread and the reading threads of blocking sources may run. An empty
    /// list allows all CPUs.
    pub cpus: Vec<u32>,
}
