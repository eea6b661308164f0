//! `manual`: writes the manual pages. They are generated from the definition of the arguments,
//! config/flatcap.toml and deploy/man/.

use std::io::{self, Write};
use std::path::PathBuf;

use flatcap_format::storage::linux::OutputDirectory;
use flatcap_os::clock::read_clocks;
use jiff::civil::Date;

use super::error::CliError;
use super::{ExitStatus, human};

mod command_pages;
mod config_page;
mod roff;

/// Text of the page about `flatcap-convert`, without its title line.
const CONVERT: &str = include_str!("../../../deploy/man/flatcap-convert.1");
/// Text of the page about `flatcap-ship`, without its title line.
const SHIP: &str = include_str!("../../../deploy/man/flatcap-ship.1");
/// Text of the page about the service, without its title line.
const SERVICE: &str = include_str!("../../../deploy/man/flatcap-service.8");

/// Write the manual pages into a directory.
///
/// flatcap(1), one page per verb, flatcap-convert(1), flatcap-ship(1), flatcap.toml(5) and
/// flatcap-service(8).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory for the pages; created if missing. Existing pages are replaced.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Date in the pages, YYYY-MM-DD; today by default.
    #[arg(long, value_parser = human::parse_date)]
    date: Option<Date>,
}

/// A manual page.
struct ManPage {
    /// File name, such as `flatcap-record.1`.
    file: String,
    /// Source text for man and mandoc.
    text: String,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let failed = |path: &PathBuf, error: io::Error| CliError::Manual { path: path.clone(), error };
    let directory = OutputDirectory::create_public(&args.directory);
    let directory = directory.map_err(|error| failed(&args.directory, error))?;
    for page in pages(args.date.unwrap_or_else(today)) {
        let path = directory.path(&page.file);
        let written = directory.begin_public(page.file).and_then(|file| {
            file.append(page.text.as_bytes())?;
            file.publish(true)
        });
        written.map_err(|error| failed(&path, error))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(ExitStatus::Done)
}

fn pages(date: Date) -> Vec<ManPage> {
    let mut pages = command_pages::pages(date);
    let config = config_page::text();
    for (name, section, text) in [
        ("flatcap-convert", 1, CONVERT),
        ("flatcap-ship", 1, SHIP),
        ("flatcap.toml", 5, &config),
        ("flatcap-service", 8, SERVICE),
    ] {
        let title = name.to_uppercase();
        let title_line = format!(".TH {title} {section} {date} \"flatcap {}\"", env!("CARGO_PKG_VERSION"));
        let text = roff::wrap(&format!("{title_line}\n{text}"));
        pages.push(ManPage { file: format!("{name}.{section}"), text });
    }
    pages
}

fn today() -> Date {
    let now = jiff::Timestamp::from_nanosecond(i128::from(read_clocks().wall_ns));
    now.unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn page(file: &str) -> String {
        let found = pages(jiff::civil::date(2026, 1, 2)).into_iter().find(|page| page.file == file);
        found.unwrap_or_else(|| panic!("no page {file}")).text
    }

    // Proves that flatcap.toml(5) has every key and table of the default configuration.
    #[test]
    fn every_key_is_in_the_manual() {
        let page = page("flatcap.toml.5").replace("\\-", "-");
        for line in Config::default().to_toml().lines().filter(|line| !line.starts_with('#')) {
            if let Some((key, _)) = line.split_once(" = ") {
                assert!(page.contains(&format!("\\fB{key}\\fR\n")), "{line}");
            } else if line.starts_with('[') {
                assert!(page.contains(&format!(".SS {line}\n")), "{line}");
            }
        }
    }

    // Proves that the service page has the signals, files and exit statuses that an administrator
    // needs.
    #[test]
    fn the_service_page_names_what_there_is() {
        let page = page("flatcap-service.8");
        for word in ["SIGHUP", "SIGUSR1", "SIGTERM", "control.sock", "/etc/flatcap/conf.d", "EXIT STATUS"] {
            assert!(page.contains(word), "{word}");
        }
    }

    // Proves that each page has a NAME line that indexers can read, and the given date.
    #[test]
    fn pages_open_alike() {
        for page in pages(jiff::civil::date(2026, 1, 2)) {
            let name = page.file.rsplit_once('.').map(|(name, _)| name.replace('-', "\\-")).unwrap();
            assert!(page.text.contains(".SH NAME\n"), "{}", page.file);
            assert!(page.text.contains(&format!("\n{name} \\- ")), "{}: {}", page.file, page.text);
            assert!(page.text.contains("2026"), "{}", page.file);
        }
    }
}
