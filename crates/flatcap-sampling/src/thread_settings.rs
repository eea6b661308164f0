//! Settings of a sampler group's thread.

use flatcap_os::keywords;

keywords! {
    /// A sampler group: one thread and the sources it reads.
    pub enum GroupName {
        /// Sources with a period of up to 10 ms.
        Fast = "fast",
        /// All others that do not block.
        Slow = "slow",
        /// Sources that something other than the kernel may delay: each is read by its own thread,
        /// with a timeout.
        Blocking = "blocking",
    }
}

keywords! {
    /// The precision with which a sampler thread meets its ticks.
    pub enum Timing {
        /// The kernel may wake the thread about 50 us late, which saves power.
        Relaxed = "relaxed",
        /// Timer slack of 1 ns: half as late, at the cost of more wake-ups.
        Precise = "precise",
        /// As precise, but the thread wakes up early and spins on the clock until the tick. Less
        /// than 1 us late, at the cost of the CPU time of the spinning.
        Spin = "spin",
    }
}

/// The scheduling of a group's thread by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSettings {
    /// The precision with which it meets its ticks.
    pub timing: Timing,
    /// The thread's real-time priority (`SCHED_FIFO`), 1 to 99; 0 for ordinary scheduling.
    pub priority: u8,
    /// The CPUs that it and the readers of blocking sources may run on; empty for all.
    pub cpus: Vec<u32>,
}
