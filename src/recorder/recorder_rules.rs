//! The rules that a recorder gets, and who learns of their firings.

use std::fmt;

use flatcap_format::segment::Marker;
use flatcap_trigger::{TriggerEngine, TriggerEvent};

/// Called with each firing of a rule and the marker that reports it, on the recorder's thread.
pub struct FiringListener(FiringCallback);

type FiringCallback = Box<dyn FnMut(&TriggerEvent, &Marker) + Send>;

impl FiringListener {
    /// Creates a listener. It must not wait.
    pub fn new(listener: impl FnMut(&TriggerEvent, &Marker) + Send + 'static) -> Self {
        Self(Box::new(listener))
    }

    pub(super) fn call(&mut self, event: &TriggerEvent, marker: &Marker) {
        (self.0)(event, marker);
    }
}

impl fmt::Debug for FiringListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiringListener").finish_non_exhaustive()
    }
}

/// The rules of a configuration, and who learns of their firings.
#[derive(Debug, Default)]
pub struct RecorderRules {
    /// The rules; sources are numbered by their ids.
    pub engine: TriggerEngine,
    /// Learns of the firings.
    pub on_firing: Option<FiringListener>,
}
