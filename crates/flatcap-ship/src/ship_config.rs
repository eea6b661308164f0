//! The configuration: a TOML file, and options of the command line, which come before it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::duration::parse_duration;
use flatcap_format::storage::open_regular;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::names::is_plain;
use crate::shipper::ShipOptions;

/// The file that is read if none is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/flatcap/ship.toml";
/// Longest configuration, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often the directory is looked at. A segment counts in the lake within seconds of this.
const INTERVAL: Duration = Duration::from_secs(10);
/// Shortest and longest interval.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];
/// Share of one core. Converting a segment of a quarter of an hour takes seconds at this.
const CPU_SHARE: f64 = 0.5;
/// Least and largest share: below, a segment would take longer than its recording.
const CPU_SHARES: [f64; 2] = [0.01, 64.0];
/// Least bandwidth, in bytes per second: an object of 16 MiB within hours.
const BANDWIDTH_MIN: u64 = 1 << 10;

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShipConfigFile {
    #[serde(default)]
    ship: FileSettings,
}

/// The table `[ship]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileSettings {
    data_dir: Option<PathBuf>,
    to: Option<String>,
    #[serde(deserialize_with = "identity")]
    host: Option<String>,
    labels: BTreeMap<String, String>,
    raw: bool,
    #[serde(deserialize_with = "interval")]
    interval: Option<Duration>,
    #[serde(deserialize_with = "bandwidth")]
    bandwidth: Option<u64>,
    #[serde(deserialize_with = "cpu_share")]
    cpu_budget: Option<f64>,
    status_file: Option<PathBuf>,
    receipts: Option<PathBuf>,
}

/// Options of the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigArguments {
    /// The configuration; by default /etc/flatcap/ship.toml if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data directory of the recorder.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The store: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`.
    #[arg(long, value_name = "URL", visible_alias = "from")]
    pub(crate) to: Option<String>,
}

/// What the operator wants, checked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShipConfig {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) to: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) raw: bool,
    #[serde(serialize_with = "as_seconds")]
    pub(crate) interval: Duration,
    /// Bytes per second; none for no limit.
    pub(crate) bandwidth: Option<u64>,
    /// Share of one core.
    pub(crate) cpu_budget: f64,
    pub(crate) status_file: Option<PathBuf>,
    /// Where the recorder reads which segments are shipped.
    pub(crate) receipts: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipConfigError {
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("{}: {error}", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        error: toml::de::Error,
    },
    #[error("no {key}: name it with --{option}, or as `{key}` in {DEFAULT_FILE}")]
    Missing { key: &'static str, option: &'static str },
}

impl ShipConfig {
    /// Reads the configuration file, if there is one, and adds the options.
    ///
    /// # Errors
    /// `Read` and `Parse`, which names the line.
    pub(crate) fn load(arguments: &ConfigArguments) -> Result<Self, ShipConfigError> {
        let default = Path::new(DEFAULT_FILE);
        let file = match &arguments.config {
            Some(path) => read(path)?,
            None if default.exists() => read(default)?,
            None => ShipConfigFile::default(),
        };
        Ok(Self::of(file.ship, arguments))
    }

    fn of(file: FileSettings, arguments: &ConfigArguments) -> Self {
        // The receipts of the file are for its own store: what is elsewhere is not there.
        let is_other = |option: Option<bool>| option == Some(false);
        let is_elsewhere = is_other(arguments.to.as_ref().zip(file.to.as_ref()).map(|(to, own)| to == own))
            || is_other(arguments.data_dir.as_ref().zip(file.data_dir.as_ref()).map(|(dir, own)| dir == own));
        Self {
            data_dir: arguments.data_dir.clone().or(file.data_dir),
            to: arguments.to.clone().or(file.to),
            host: file.host,
            labels: file.labels,
            raw: file.raw,
            interval: file.interval.unwrap_or(INTERVAL),
            bandwidth: file.bandwidth,
            cpu_budget: file.cpu_budget.unwrap_or(CPU_SHARE),
            status_file: file.status_file.filter(|path| !path.as_os_str().is_empty()),
            receipts: file.receipts.filter(|path| !path.as_os_str().is_empty() && !is_elsewhere),
        }
    }

    /// Returns the data directory.
    ///
    /// # Errors
    /// `Missing`.
    pub(crate) fn data_dir(&self) -> Result<&Path, ShipConfigError> {
        self.data_dir.as_deref().ok_or(ShipConfigError::Missing { key: "data_dir", option: "data-dir" })
    }

    /// Returns the URL of the store.
    ///
    /// # Errors
    /// `Missing`.
    pub(crate) fn to(&self) -> Result<&str, ShipConfigError> {
        self.to.as_deref().ok_or(ShipConfigError::Missing { key: "to", option: "to" })
    }

    /// Returns how segments are shipped.
    pub(crate) fn ship_options(&self) -> ShipOptions {
        ShipOptions {
            host: self.host.clone(),
            labels: self.labels.clone(),
            is_raw: self.raw,
            cpu_share: Some(self.cpu_budget),
        }
    }
}

fn read(path: &Path) -> Result<ShipConfigFile, ShipConfigError> {
    let failed = |error| ShipConfigError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let file = open_regular(path).map_err(failed)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, FILE_BYTES_MAX), &mut text)
        .map_err(failed)?;
    toml::from_str(&text).map_err(|error| ShipConfigError::Parse { path: path.to_owned(), error })
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "" => Ok(None),
        plain if is_plain(plain) => Ok(Some(text)),
        _ => Err(de::Error::custom("not an identity: letters, digits, `.`, `_` and `-`, at most 200")),
    }
}

fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let interval = parse_duration(&text).map_err(de::Error::custom)?;
    let [least, most] = INTERVALS;
    if interval < least || interval > most {
        return Err(de::Error::custom(format!("{text}: an interval is 1s to 24h")));
    }
    Ok(Some(interval))
}

fn bandwidth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "unlimited" {
        return Ok(None);
    }
    let bytes = size(&text)
        .ok_or_else(|| de::Error::custom(format!("{text}: bytes per second as \"500KiB\" or \"10MiB\"")))?;
    if bytes < BANDWIDTH_MIN {
        return Err(de::Error::custom(format!("{text}: a bandwidth is at least 1KiB")));
    }
    Ok(Some(bytes))
}

/// Reads a size such as `10MiB`.
fn size(text: &str) -> Option<u64> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1_u64)];
    let (number, scale) =
        units.into_iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim(), scale)))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

fn cpu_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let share = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = share.map(|percent| percent / 100.0);
    let [least, most] = CPU_SHARES;
    match share.filter(|share| (least..=most).contains(share)) {
        Some(share) => Ok(Some(share)),
        None => Err(de::Error::custom(format!("{text}: a share of one core is \"1%\" to \"6400%\""))),
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
        let file: ShipConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
        Ok(ShipConfig::of(file.ship, &ConfigArguments::default()))
    }

    // Proves that each key is read, that the example in docs/LAKE.md is a configuration, and that
    // options come before the file.
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
        let file: ShipConfigFile = toml::from_str("ship.to = \"s3://y\"").unwrap();
        assert_eq!(ShipConfig::of(file.ship, &arguments).to().unwrap(), "file:///x");
    }

    // Proves that a mistake is refused with its line and what is valid.
    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[ship]\nfrom = \"x\"", "unknown field"),
            ("[shop]\n", "unknown field"),
            ("[ship]\ninterval = \"0s\"", "1s to 24h"),
            ("[ship]\nbandwidth = \"10\"", "500KiB"),
            ("[ship]\nbandwidth = \"-1MiB\"", "500KiB"),
            ("[ship]\nbandwidth = \"1B\"", "at least 1KiB"),
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
