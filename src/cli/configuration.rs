//! Which configuration does a verb read? The file that was named, else the service's, and what the environment says.

use std::path::Path;

use crate::config::{Layers, VARIABLE_PREFIX};
use crate::os::environment;

/// How the verbs that read a configuration tell where it comes from, behind their own options.
pub(super) const HELP: &str = "\
The configuration: FILE, without one flatcap.toml in $CONFIGURATION_DIRECTORY, without that what is built in. Over it, in the order of \
their names, the files conf.d/*.toml beside it. Over these, variables of the environment: FLATCAP_STORAGE__SEGMENT_SIZE=64MiB is \
segment_size in [storage]. Tables are merged key by key.";

/// Where `file`, or without one the service manager, and the environment say that it is.
pub(super) fn layers(file: Option<&Path>) -> Layers {
    let layers = match (file, environment::directory("CONFIGURATION_DIRECTORY")) {
        (Some(file), _) => Layers::file(file),
        (None, Some(directory)) => Layers::directory(&directory),
        (None, None) => Layers::defaults(),
    };
    layers.with_variables(environment::variables(VARIABLE_PREFIX))
}
