//! Finds the configuration that a verb reads. This is the file that the user names, or else the
//! file of the service. The settings from the environment are added to it.

use std::path::Path;

use flatcap_os::environment;

use crate::config::{Layers, VARIABLE_PREFIX};
use crate::daemon::memory_rule;

/// Help text about the files of the configuration. The text follows the list of options of each
/// verb that reads a configuration.
pub(super) const HELP: &str = "\
Configuration: FILE, or flatcap.toml in $CONFIGURATION_DIRECTORY, or the built-in defaults. The files \
conf.d/*.toml beside it override it, in the order of their names, and environment variables override all files: \
FLATCAP_STORAGE__SEGMENT_SIZE=64MiB sets segment_size in [storage]. Tables are merged key by key.";

/// Returns the layers of the configuration for `file`. Without a file, returns the layers from the
/// configuration directory of the service manager.
pub(super) fn layers(file: Option<&Path>) -> Layers {
    let layers = match (file, environment::directory("CONFIGURATION_DIRECTORY")) {
        (Some(file), _) => Layers::file(file),
        (None, Some(directory)) => Layers::directory(&directory),
        (None, None) => Layers::defaults(),
    };
    layers.with_variables(environment::variables(VARIABLE_PREFIX)).with_memory_rule(memory_rule)
}
