//! The configuration. The configuration consists of the files and of command-line options, which
//! override the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::config_files::{ConfigFiles, DEFAULT_FILE, FileSettings, ShipConfigError};
use crate::nats_settings::NatsSettings;
use crate::shipper::ShipOptions;

/// Default interval between two checks of the directory. A segment is complete in the lake at most
/// a few seconds after the interval ends.
const INTERVAL: Duration = Duration::from_secs(10);
/// Default limit on the CPU time, as a share of one core.
// With this share, converting a segment of a quarter of an hour takes seconds.
const CPU_SHARE: f64 = 0.5;

/// Options of the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigArguments {
    /// The configuration; by default /etc/flatcap/ship.toml if it exists. Files in the directory
    /// with the same name and the suffix `.d` are read, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data directory of the recorder.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The store: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`. `status` and `compact` also accept --from.
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Another name of --to, for verbs that read the store.
    #[arg(long, value_name = "URL", hide = true, conflicts_with = "to")]
    pub(crate) from: Option<String>,
}

/// The checked configuration.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShipConfig {
    /// The files that were read. Later files override earlier ones.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) to: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) raw: bool,
    #[serde(serialize_with = "as_seconds")]
    pub(crate) interval: Duration,
    /// Maximum number of bytes that are put per second, or `None` for no limit.
    pub(crate) bandwidth: Option<u64>,
    /// Maximum CPU time, as a share of one core.
    pub(crate) cpu_budget: f64,
    pub(crate) status_file: Option<PathBuf>,
    /// The file to which the service writes its metrics.
    pub(crate) metrics_file: Option<PathBuf>,
    /// The file with the receipts. The recorder reads in it which segments are shipped.
    pub(crate) receipts: Option<PathBuf>,
    /// Settings for messages about shipped segments, or `None` if no messages are sent.
    pub(crate) nats: Option<NatsSettings>,
}

impl ShipConfig {
    /// Reads the configuration file, if there is one, and its drop-ins. Then applies the options.
    ///
    /// # Errors
    /// The errors of [`ConfigFiles::read`].
    pub(crate) fn load(arguments: &ConfigArguments) -> Result<Self, ShipConfigError> {
        let (path, is_optional) = match &arguments.config {
            Some(path) => (path.as_path(), false),
            None => (Path::new(DEFAULT_FILE), true),
        };
        let ConfigFiles { settings, files } = ConfigFiles::read(path, is_optional)?;
        Ok(Self { files, ..Self::of(settings, arguments) })
    }

    fn of(file: FileSettings, arguments: &ConfigArguments) -> Self {
        // Receipts and messages in the file apply only to the store in the file, because another
        // store does not have the same objects.
        let to = arguments.to.as_ref().or(arguments.from.as_ref());
        let is_other = |option: Option<bool>| option == Some(false);
        let is_other_store = is_other(to.zip(file.to.as_ref()).map(|(to, own)| to == own));
        let is_elsewhere = is_other_store
            || is_other(arguments.data_dir.as_ref().zip(file.data_dir.as_ref()).map(|(dir, own)| dir == own));
        let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        Self {
            files: Vec::new(),
            data_dir: arguments.data_dir.clone().or(file.data_dir),
            to: to.cloned().or(file.to),
            host: file.host.flatten(),
            labels: file.labels,
            raw: file.raw.unwrap_or(false),
            interval: file.interval.unwrap_or(INTERVAL),
            bandwidth: file.bandwidth.flatten(),
            cpu_budget: file.cpu_budget.unwrap_or(CPU_SHARE),
            status_file: path(file.status_file),
            metrics_file: path(file.metrics_file),
            receipts: path(file.receipts).filter(|_| !is_elsewhere),
            nats: file.nats.flatten().filter(|_| !is_other_store),
        }
    }

    /// Returns the data directory.
    ///
    /// # Errors
    /// `Missing` if the key is not set.
    pub(crate) fn data_dir(&self) -> Result<&Path, ShipConfigError> {
        self.data_dir.as_deref().ok_or(ShipConfigError::Missing { key: "data_dir", option: "data-dir" })
    }

    /// Returns the URL of the store.
    ///
    /// # Errors
    /// `Missing` if the key is not set.
    pub(crate) fn to(&self) -> Result<&str, ShipConfigError> {
        self.to.as_deref().ok_or(ShipConfigError::Missing { key: "to", option: "to" })
    }

    /// Returns the options for shipping segments.
    pub(crate) fn ship_options(&self) -> ShipOptions {
        ShipOptions {
            host: self.host.clone(),
            labels: self.labels.clone(),
            is_raw: self.raw,
            cpu_share: Some(self.cpu_budget),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ShipConfig, String> {
        let file = FileSettings::parse(text).map_err(|error| error.to_string())?;
        Ok(ShipConfig::of(file, &ConfigArguments::default()))
    }

    // Proves that each key is read, that the example in docs/LAKE.md is a valid configuration, and
    // that options override the file.
    #[test]
    fn files_are_read() {
        let documented = include_str!("../../../docs/LAKE.md");
        let (_, example) = documented.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let config = parsed(example).unwrap();
        assert_eq!(config.to().unwrap(), "s3://telemetry/flatcap");
        assert_eq!(config.data_dir().unwrap(), Path::new("/var/lib/flatcap"));
        assert_eq!(config.labels, BTreeMap::from([("role".to_owned(), "db".to_owned())]));
        assert_eq!((config.interval, config.cpu_budget), (INTERVAL, CPU_SHARE), "the defaults");
        assert_eq!((config.bandwidth, &config.status_file, &config.host), (None, &None, &None));
        let config =
            parsed("ship.bandwidth = \"10MiB\"\nship.cpu_budget = \"5%\"\nship.host = \"a\"").unwrap();
        assert_eq!((config.bandwidth, config.cpu_budget), (Some(10 << 20), 0.05));
        assert_eq!((config.host.as_deref(), config.to().is_err()), (Some("a"), true));
        let arguments = ConfigArguments { to: Some("file:///x".to_owned()), ..ConfigArguments::default() };
        let file = FileSettings::parse("ship.to = \"s3://y\"").unwrap();
        assert_eq!(ShipConfig::of(file, &arguments).to().unwrap(), "file:///x");
    }

    // Proves that the error for a mistake contains the line of the mistake and the valid values.
    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[ship]\nfrom = \"x\"", "unknown field"),
            ("[shop]\n", "unknown field"),
            ("[ship]\ninterval = \"0s\"", "1s to 24h"),
            ("[ship]\nbandwidth = \"10\"", "no unit, as in 10MiB"),
            ("[ship]\nbandwidth = \"-1MiB\"", "negative"),
            (
                "[ship]\nbandwidth = \"1B\"",
                "too small; write a number with B, KiB, MiB, GiB or TiB, from 1KiB",
            ),
            ("[ship]\ncpu_budget = \"0%\"", "1%"),
            ("[ship]\ncpu_budget = \"NaN%\"", "1%"),
            ("[ship]\nhost = \"a/b\"", "identity"),
            ("[ship]\nlabels = 3", "map"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected) && error.contains("line "), "{text}: {error}");
        }
    }
}
