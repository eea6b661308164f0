//! The rules of a recorder, and the listener that is called when they fire.

use std::fmt;

use flatcap_format::segment::{Marker, SourceInfo};
use flatcap_trigger::{ScopedEngine, TriggerEvent};

/// A listener that is called for each firing of a rule, with the marker that reports the firing.
/// The listener runs on the recorder's thread.
pub struct FiringListener(FiringCallback);

type FiringCallback = Box<dyn FnMut(&TriggerEvent, &Marker) + Send>;

impl FiringListener {
    /// Creates a listener. `listener` must not wait.
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

/// The rules about sources that applications push.
pub struct PushedRules {
    names: Vec<String>,
    compile: RuleCompilation,
}

type RuleCompilation = Box<dyn FnMut(&[SourceInfo], u16) -> ScopedEngine + Send>;

impl PushedRules {
    /// Creates the rules about pushed sources with these names. `compile` receives all sources of
    /// the run, ordered by id, and the id of a pushed source. `compile` compiles the rules that
    /// name this source, and is called on the recorder's thread.
    pub fn new(
        names: Vec<String>,
        compile: impl FnMut(&[SourceInfo], u16) -> ScopedEngine + Send + 'static,
    ) -> Self {
        Self { names, compile: Box::new(compile) }
    }

    pub(super) fn names(&self, source: &str) -> bool {
        self.names.iter().any(|name| name == source)
    }

    pub(super) fn compile(&mut self, sources: &[SourceInfo], id: u16) -> ScopedEngine {
        (self.compile)(sources, id)
    }
}

impl fmt::Debug for PushedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushedRules").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The rules of a configuration, and the listener that is called when they fire.
#[derive(Debug, Default)]
pub struct RecorderRules {
    /// The rules about the host's sources, which applications do not push.
    pub engine: ScopedEngine,
    /// The listener that is called for each firing.
    pub on_firing: Option<FiringListener>,
    /// The rules about sources that applications push.
    pub pushed: Option<PushedRules>,
}
