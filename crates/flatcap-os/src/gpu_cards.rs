//! Graphics cards whose driver is read through library calls instead of files.

use std::fmt;

/// The constant properties of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardIdentity {
    /// PCI address, such as 0000:09:00.0.
    pub address: String,
    /// Product name.
    pub name: String,
}

/// The current metrics of a card, in NVML's units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardMetrics {
    /// GPU utilization, percent.
    pub busy: Option<u32>,
    /// Memory utilization, percent.
    pub memory_busy: Option<u32>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
    /// Total memory, bytes.
    pub memory_total: Option<u64>,
    /// Power draw, milliwatts.
    pub power: Option<u32>,
    /// Enforced power limit, milliwatts.
    pub power_limit: Option<u32>,
    /// Energy used, millijoules.
    pub energy: Option<u64>,
    /// GPU temperature, degrees Celsius.
    pub temperature: Option<u32>,
    /// Graphics clock, megahertz.
    pub clock: Option<u32>,
    /// Memory clock, megahertz.
    pub memory_clock: Option<u32>,
    /// Fan speed, revolutions per minute.
    pub fan: Option<u32>,
    /// Number of metrics that could not be read although the card supports them.
    pub failures: u32,
}

/// All cards of a driver that is read through library calls instead of files.
pub trait Cards: fmt::Debug + Send {
    /// Returns the current list of cards if the list has changed since the last call.
    fn list_if_changed(&mut self) -> Option<Vec<(CardIdentity, Box<dyn Card>)>>;
}

/// A card whose driver is read through library calls. A card can be read while other cards are
/// listed or read.
pub trait Card: fmt::Debug + Send {
    /// Reads the current metrics of the card.
    fn read(&mut self) -> CardMetrics;
}
