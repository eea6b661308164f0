//! NVIDIA's management library (NVML), loaded at run time, so that the same binary runs on hosts
//! with and without the library.

use std::ffi::OsStr;
use std::fmt;

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::gpu_cards::{Card, CardIdentity, CardMetrics, Cards};

/// The name under which the driver installs the library. Only development packages install the
/// unversioned name.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The loaded and initialized library. The library stays loaded until the process ends.
pub(super) struct NvidiaCards {
    library: &'static Nvml,
    listed: Option<usize>, // number of cards
}

/// A card that the library has listed.
struct NvidiaCard(Device<'static>);

impl fmt::Debug for NvidiaCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvidiaCard").finish_non_exhaustive()
    }
}

impl fmt::Debug for NvidiaCards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvidiaCards").field("listed", &self.listed).finish_non_exhaustive()
    }
}

impl NvidiaCards {
    /// Loads and initializes the library.
    ///
    /// # Errors
    /// The library or its driver is missing.
    pub(super) fn load() -> Result<Self, String> {
        let library = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().map_err(|error| match error {
            // The loader's message already names the library.
            NvmlError::LibloadingError(error) => error.to_string(),
            error => format!("{LIBRARY}: {error}"),
        })?;
        // Device handles borrow the library. The leak is bounded, because only one source of a run
        // loads the library.
        Ok(Self { library: Box::leak(Box::new(library)), listed: None })
    }
}

impl Cards for NvidiaCards {
    fn list_if_changed(&mut self) -> Option<Vec<(CardIdentity, Box<dyn Card>)>> {
        let count = self.library.device_count().unwrap_or(0);
        if self.listed.is_some_and(|listed| usize::try_from(count) == Ok(listed)) {
            return None;
        }
        let devices: Vec<Device<'static>> =
            (0..count).filter_map(|index| self.library.device_by_index(index).ok()).collect();
        self.listed = Some(devices.len());
        let identity = |device: &Device<'_>| CardIdentity {
            address: device.pci_info().map_or_else(
                |_| String::new(),
                |it| format!("{:04x}:{:02x}:{:02x}.0", it.domain, it.bus, it.device),
            ),
            name: device.name().unwrap_or_default(),
        };
        let card =
            |device| -> (CardIdentity, Box<dyn Card>) { (identity(&device), Box::new(NvidiaCard(device))) };
        Some(devices.into_iter().map(card).collect())
    }
}

impl Card for NvidiaCard {
    fn read(&mut self) -> CardMetrics {
        let (device, mut metrics) = (&self.0, CardMetrics::default());
        let mut failures = 0;
        let utilization = value_or_failure(device.utilization_rates(), &mut failures);
        let memory = value_or_failure(device.memory_info(), &mut failures);
        metrics.busy = utilization.as_ref().map(|it| it.gpu);
        metrics.memory_busy = utilization.as_ref().map(|it| it.memory);
        metrics.memory_used = memory.as_ref().map(|it| it.used);
        metrics.memory_total = memory.as_ref().map(|it| it.total);
        metrics.power = value_or_failure(device.power_usage(), &mut failures);
        metrics.power_limit = value_or_failure(device.enforced_power_limit(), &mut failures);
        metrics.energy = value_or_failure(device.total_energy_consumption(), &mut failures);
        metrics.temperature = value_or_failure(device.temperature(TemperatureSensor::Gpu), &mut failures);
        metrics.clock = value_or_failure(device.clock_info(Clock::Graphics), &mut failures);
        metrics.memory_clock = value_or_failure(device.clock_info(Clock::Memory), &mut failures);
        metrics.fan = value_or_failure(device.fan_speed_rpm(0), &mut failures);
        metrics.failures = failures;
        metrics
    }
}

/// Returns the value, or `None` after an error. Counts the error as a failure unless the library or
/// the card does not support the value. `InvalidArg` also means that the value is not supported,
/// because all arguments are valid.
fn value_or_failure<T>(answer: Result<T, NvmlError>, failures: &mut u32) -> Option<T> {
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

    // Proves that a missing library is reported by name, and that the cards of a present library
    // can be read. The test covers only the case that applies to this host.
    #[test]
    fn the_library_is_there_or_named() {
        match NvidiaCards::load() {
            Ok(mut cards) => {
                let listed = cards.list_if_changed().unwrap();
                assert!(cards.list_if_changed().is_none());
                for (_, mut card) in listed {
                    assert!(card.read().memory_total.is_some());
                }
            }
            Err(reason) => assert!(reason.contains("libnvidia-ml.so.1"), "{reason}"),
        }
    }
}
