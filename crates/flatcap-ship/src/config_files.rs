//! The configuration files, which are a TOML file and its drop-ins.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::duration::parse_duration;
use flatcap_format::storage::open_regular;
use flatcap_text::quantity::size_argument;
use serde::{Deserialize, Deserializer, de};

use crate::names::is_plain;
use crate::nats_settings::{NatsSettings, nats};

/// The file that is read if no other file is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/flatcap/ship.toml";
/// Maximum size of the configuration with its drop-ins, in bytes. The recorder has the same limit.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of drop-ins. The recorder has the same limit.
const DROP_INS_MAX: usize = 256;
/// Minimum and maximum of the setting `interval`.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];
/// Minimum and maximum of the CPU share.
// With a share below the minimum, shipping a segment would take longer than recording it.
const CPU_SHARES: [f64; 2] = [0.01, 64.0];
/// Minimum bandwidth, in bytes per second.
// With the minimum bandwidth, uploading an object of 16 MiB takes hours.
const BANDWIDTH_MIN: u64 = 1 << 10;

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShipConfigFile {
    #[serde(default)]
    ship: FileSettings,
}

/// The table `[ship]`. `None` means that the key is not set, and `Some(None)` means that the key
/// cancels an earlier value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::option_option, reason = "a drop-in can take a value back")]
pub(crate) struct FileSettings {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) to: Option<String>,
    #[serde(deserialize_with = "identity")]
    pub(crate) host: Option<Option<String>>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) raw: Option<bool>,
    #[serde(deserialize_with = "interval")]
    pub(crate) interval: Option<Duration>,
    #[serde(deserialize_with = "bandwidth")]
    pub(crate) bandwidth: Option<Option<u64>>,
    #[serde(deserialize_with = "cpu_share")]
    pub(crate) cpu_budget: Option<f64>,
    pub(crate) status_file: Option<PathBuf>,
    pub(crate) metrics_file: Option<PathBuf>,
    pub(crate) receipts: Option<PathBuf>,
    #[serde(deserialize_with = "nats")]
    pub(crate) nats: Option<Option<NatsSettings>>,
}

/// The settings in the files, and the names of the files.
#[derive(Debug, Default)]
pub(crate) struct ConfigFiles {
    pub(crate) settings: FileSettings,
    /// The files in the order in which they were read. Later files override earlier ones.
    pub(crate) files: Vec<PathBuf>,
}

/// The reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipConfigError {
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("{}{place}: {what}", path.display())]
    Parse { path: PathBuf, place: String, what: String },
    #[error("{}: more than {FILE_BYTES_MAX} bytes together with the files before it", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: more than {DROP_INS_MAX} drop-ins", path.display())]
    TooMany { path: PathBuf },
    #[error("no {key}: name it with --{option}, or as `{key}` in {DEFAULT_FILE}")]
    Missing { key: &'static str, option: &'static str },
}

impl ConfigFiles {
    /// Reads a file and its drop-ins. The drop-ins of `ship.toml` are `ship.d/*.toml`, in byte
    /// order of their names, without hidden files. Later files override keys and add labels.
    ///
    /// # Errors
    /// `Read` if a file cannot be read, or if a file that is not optional is missing. `Parse` if a
    /// file is malformed. The error names the line. `TooLong` and `TooMany`.
    pub(crate) fn read(path: &Path, is_optional: bool) -> Result<Self, ShipConfigError> {
        let mut read = Self::default();
        let mut bytes_left = FILE_BYTES_MAX;
        // A symbolic link whose target does not exist is a mistake, not a missing file.
        if !is_optional || path.symlink_metadata().is_ok() {
            read.add(path, &mut bytes_left)?;
        }
        for path in drop_ins(&path.with_extension("d"))? {
            read.add(&path, &mut bytes_left)?;
        }
        Ok(read)
    }

    fn add(&mut self, path: &Path, bytes_left: &mut u64) -> Result<(), ShipConfigError> {
        let failed = |error| ShipConfigError::Read { path: path.to_owned(), error };
        let mut text = String::new();
        let file = open_regular(path).map_err(failed)?;
        // Read at most one byte more than allowed. This byte shows that the file is too long,
        // without reading the whole file.
        let length = file.take(*bytes_left + 1).read_to_string(&mut text).map_err(failed)?;
        *bytes_left = bytes_left
            .checked_sub(length as u64)
            .ok_or_else(|| ShipConfigError::TooLong { path: path.to_owned() })?;
        let later = FileSettings::parse(&text).map_err(|error| ShipConfigError::Parse {
            path: path.to_owned(),
            place: error.span().map(|span| place(&text, span.start)).unwrap_or_default(),
            what: error.message().to_owned(),
        })?;
        self.settings = std::mem::take(&mut self.settings).with(later);
        self.files.push(path.to_owned());
        Ok(())
    }
}

impl FileSettings {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Returns the first mistake, with its line.
    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        Ok(toml::from_str::<ShipConfigFile>(text)?.ship)
    }

    /// Returns these settings, overridden by the settings of a later file.
    fn with(self, later: Self) -> Self {
        let mut labels = self.labels;
        labels.extend(later.labels);
        Self {
            data_dir: later.data_dir.or(self.data_dir),
            to: later.to.or(self.to),
            host: later.host.or(self.host),
            labels,
            raw: later.raw.or(self.raw),
            interval: later.interval.or(self.interval),
            bandwidth: later.bandwidth.or(self.bandwidth),
            cpu_budget: later.cpu_budget.or(self.cpu_budget),
            status_file: later.status_file.or(self.status_file),
            metrics_file: later.metrics_file.or(self.metrics_file),
            receipts: later.receipts.or(self.receipts),
            nats: later.nats.or(self.nats),
        }
    }
}

/// Returns the line and the column of an offset in a text. The result has the form that follows a
/// path in messages, as in `:3:1`.
fn place(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    format!(":{}:{}", before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Returns the drop-ins in a directory, which may be missing.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, ShipConfigError> {
    let failed = |error: io::Error| ShipConfigError::Read { path: folder.to_owned(), error };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".toml") && !bytes.starts_with(b".") {
            if found.len() == DROP_INS_MAX {
                return Err(ShipConfigError::TooMany { path: folder.to_owned() });
            }
            found.push(folder.join(name));
        }
    }
    found.sort();
    Ok(found)
}

#[expect(clippy::option_option, reason = "as in FileSettings")]
fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "" => Ok(Some(None)),
        plain if is_plain(plain) => Ok(Some(Some(text))),
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

#[expect(clippy::option_option, reason = "as in FileSettings")]
fn bandwidth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "unlimited" {
        return Ok(Some(None));
    }
    // Bytes per second, as a size.
    match size_argument(text.trim(), &(BANDWIDTH_MIN..=u64::MAX)) {
        Ok(bytes) => Ok(Some(Some(bytes))),
        Err(error) => Err(de::Error::custom(format!("{text}: {error}, or unlimited"))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that drop-ins are read in the order of their names. Each drop-in replaces only the
    // keys that it sets, labels are added, and a value can be unset.
    #[test]
    fn drop_ins_come_after_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ship.toml");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(folder.path().join("ship.d")).unwrap();
        write("ship.d/10-site.toml", "ship.labels = { site = \"fra\" }\nship.host = \"\"\n");
        write("ship.d/9-first-by-number.toml", "ship.to = \"s3://nine\"\nship.bandwidth = \"unlimited\"\n");
        for ignored in [".hidden.toml", "README", "50.toml.dpkg-old"] {
            write(&format!("ship.d/{ignored}"), "not toml");
        }
        assert_eq!(ConfigFiles::read(&file, true).unwrap().files.len(), 2, "the file may be missing");
        let text = "[ship]\nto = \"s3://one\"\nhost = \"a\"\nraw = true\nbandwidth = \"1MiB\"\n\
                    labels = { role = \"db\", site = \"ams\" }\n";
        write("ship.toml", text);
        let ConfigFiles { settings, files } = ConfigFiles::read(&file, false).unwrap();
        let labels =
            [("role", "db"), ("site", "fra")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected = FileSettings {
            to: Some("s3://nine".to_owned()),
            host: Some(None),
            labels: BTreeMap::from(labels),
            raw: Some(true),
            bandwidth: Some(None),
            ..FileSettings::default()
        };
        assert_eq!(settings, expected);
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["ship.toml", "10-site.toml", "9-first-by-number.toml"]);
    }

    // Proves that a mistake in a drop-in is reported with the drop-in's path and its line. Files
    // are refused if they are too long, too many, missing or not regular.
    #[test]
    fn bad_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ship.toml");
        let error = || ConfigFiles::read(&file, false).unwrap_err().to_string();
        assert!(error().contains("ship.toml: No such file"), "{}", error());
        std::fs::write(&file, "").unwrap();
        let drop_ins = folder.path().join("ship.d");
        std::fs::create_dir(&drop_ins).unwrap();
        std::fs::write(drop_ins.join("a.toml"), "\n[ship]\ninterval = \"0s\"").unwrap();
        assert!(error().contains("ship.d/a.toml:3:12: 0s: an interval"), "{}", error());
        std::fs::write(drop_ins.join("a.toml"), "#".repeat(1 << 20)).unwrap();
        assert!(ConfigFiles::read(&file, false).is_ok(), "the longest");
        std::fs::write(&file, "#").unwrap();
        assert!(error().contains("a.toml: more than 1048576 bytes"), "{}", error());
        std::fs::write(drop_ins.join("a.toml"), "").unwrap();
        std::fs::create_dir(drop_ins.join("b.toml")).unwrap();
        assert!(error().contains("b.toml: "), "{}", error());
        std::fs::remove_dir(drop_ins.join("b.toml")).unwrap();
        for number in 0..DROP_INS_MAX {
            std::fs::write(drop_ins.join(format!("{number}.toml")), "").unwrap();
        }
        assert!(error().contains("more than 256 drop-ins"), "{}", error());
    }
}
