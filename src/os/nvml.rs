//! NVIDIA's management library, loaded while the program runs: hosts without it have the same program.

use std::ffi::OsStr;
use std::fmt;

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The name that the driver installs; the one without a number comes with development packages alone.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// A card, by what does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardIdentity {
    /// Its address on the bus, as 0000:09:00.0.
    pub address: String,
    /// Its product name.
    pub name: String,
}

/// What a card says of itself, in the library's units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardReading {
    /// Percent.
    pub busy: Option<u32>,
    /// Percent.
    pub memory_busy: Option<u32>,
    /// Bytes.
    pub memory_used: Option<u64>,
    /// Bytes.
    pub memory_total: Option<u64>,
    /// Milliwatts.
    pub power: Option<u32>,
    /// Milliwatts.
    pub power_limit: Option<u32>,
    /// Millijoules.
    pub energy: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Megahertz.
    pub clock: Option<u32>,
    /// Megahertz.
    pub memory_clock: Option<u32>,
    /// Turns a minute.
    pub fan: Option<u32>,
    /// How many of these could not be read although the card has them.
    pub failures: u32,
}

/// The cards of a driver that is asked by calls instead of files.
pub trait Cards: fmt::Debug + Send {
    /// The cards that are there now, if those are others than at the last call.
    fn changed(&mut self) -> Option<Vec<CardIdentity>>;

    /// What the card says that stood in this place of the last list.
    fn read(&self, place: usize) -> CardReading;
}

/// The library, loaded and started. It stays so until the process ends.
pub struct NvidiaCards {
    library: &'static Nvml,
    devices: Vec<Device<'static>>,
    is_listed: bool,
}

impl fmt::Debug for NvidiaCards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvidiaCards").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

impl NvidiaCards {
    /// Loads and starts the library.
    ///
    /// # Errors
    /// The library is not there, or its driver is not.
    pub fn load() -> Result<Self, String> {
        let library = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().map_err(|error| match error {
            // What the loader says names the library.
            NvmlError::LibloadingError(error) => error.to_string(),
            error => format!("{LIBRARY}: {error}"),
        })?;
        // Handles of cards refer to it; one source of one run has them.
        Ok(Self { library: Box::leak(Box::new(library)), devices: Vec::new(), is_listed: false })
    }
}

impl Cards for NvidiaCards {
    fn changed(&mut self) -> Option<Vec<CardIdentity>> {
        let count = self.library.device_count().unwrap_or(0);
        if self.is_listed && usize::try_from(count) == Ok(self.devices.len()) {
            return None;
        }
        self.is_listed = true;
        self.devices = (0..count).filter_map(|index| self.library.device_by_index(index).ok()).collect();
        let identity = |device: &Device<'_>| CardIdentity {
            address: device.pci_info().map_or_else(
                |_| String::new(),
                |it| format!("{:04x}:{:02x}:{:02x}.0", it.domain, it.bus, it.device),
            ),
            name: device.name().unwrap_or_default(),
        };
        Some(self.devices.iter().map(identity).collect())
    }

    fn read(&self, place: usize) -> CardReading {
        let mut reading = CardReading::default();
        let Some(device) = self.devices.get(place) else { return reading };
        let mut failures = 0;
        let utilization = told(device.utilization_rates(), &mut failures);
        let memory = told(device.memory_info(), &mut failures);
        reading.busy = utilization.as_ref().map(|it| it.gpu);
        reading.memory_busy = utilization.as_ref().map(|it| it.memory);
        reading.memory_used = memory.as_ref().map(|it| it.used);
        reading.memory_total = memory.as_ref().map(|it| it.total);
        reading.power = told(device.power_usage(), &mut failures);
        reading.power_limit = told(device.enforced_power_limit(), &mut failures);
        reading.energy = told(device.total_energy_consumption(), &mut failures);
        reading.temperature = told(device.temperature(TemperatureSensor::Gpu), &mut failures);
        reading.clock = told(device.clock_info(Clock::Graphics), &mut failures);
        reading.memory_clock = told(device.clock_info(Clock::Memory), &mut failures);
        reading.fan = told(device.fan_speed_rpm(0), &mut failures);
        reading.failures = failures;
        reading
    }
}

/// What the library told; what it or the card does not have at all is no failure.
fn told<T>(answer: Result<T, NvmlError>, failures: &mut u32) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::InvalidArg) => None,
        Err(_) => {
            *failures += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a host without the library is told so by the library's name, and one with it has cards that answer. Method:
    // whichever of the two this host is.
    #[test]
    fn the_library_is_there_or_named() {
        match NvidiaCards::load() {
            Ok(mut cards) => {
                let listed = cards.changed().unwrap();
                assert!(cards.changed().is_none());
                for place in 0..listed.len() {
                    assert!(cards.read(place).memory_total.is_some());
                }
            }
            Err(reason) => assert!(reason.contains("libnvidia-ml.so.1"), "{reason}"),
        }
    }
}
