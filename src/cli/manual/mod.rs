//! `manual`: the manual pages, made from the definition of the arguments, from config/flatcap.toml and from deploy/man/.

use std::io::Write;
use std::path::PathBuf;
use std::{fs, io};

use jiff::civil::Date;

use super::Outcome;
use super::error::CliError;
use crate::os::clock::ClockReading;

mod commands;
mod roff;
mod settings;

/// Prose of the page on the service, behind its title line.
const SERVICE: &str = include_str!("../../../deploy/man/flatcap-service.8");

/// Write the manual pages into a directory: flatcap(1), one page a verb, flatcap.toml(5), flatcap-service(8).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory; created if missing, pages of the same names are replaced.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The date in the pages, YYYY-MM-DD; today where it is not given.
    #[arg(long)]
    date: Option<Date>,
}

/// One manual page.
struct Page {
    /// `flatcap-record.1`
    file: String,
    /// Its source, for man and mandoc.
    text: String,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let failed = |path: &PathBuf, error: io::Error| CliError::Manual { path: path.clone(), error };
    fs::create_dir_all(&args.directory).map_err(|error| failed(&args.directory, error))?;
    for page in pages(args.date.unwrap_or_else(today)) {
        let path = args.directory.join(page.file);
        fs::write(&path, page.text).map_err(|error| failed(&path, error))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(Outcome::Done)
}

fn pages(date: Date) -> Vec<Page> {
    let mut pages = commands::pages(date);
    pages.push(Page {
        file: "flatcap.toml.5".to_owned(),
        text: titled("FLATCAP.TOML", "5", date, &settings::text()),
    });
    pages.push(Page {
        file: "flatcap-service.8".to_owned(),
        text: titled("FLATCAP-SERVICE", "8", date, SERVICE),
    });
    pages
}

/// The text behind a title line.
fn titled(title: &str, section: &str, date: Date, text: &str) -> String {
    let title_line = format!(".TH {title} {section} {date} \"flatcap {}\"", env!("CARGO_PKG_VERSION"));
    roff::fill(&format!("{title_line}\n{text}"))
}

fn today() -> Date {
    let now = jiff::Timestamp::from_nanosecond(i128::from(ClockReading::now().wall_ns));
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

    // Goal: no key is left out of flatcap.toml(5). Method: every key that the default configuration prints, and each of its
    // tables, is looked for in the page.
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

    // Goal: the service page names what an administrator looks for. Method: signals, files and statuses, by hand.
    #[test]
    fn the_service_page_names_what_there_is() {
        let page = page("flatcap-service.8");
        for word in ["SIGHUP", "SIGUSR1", "SIGTERM", "control.sock", "/etc/flatcap/conf.d", "EXIT STATUS"] {
            assert!(page.contains(word), "{word}");
        }
    }

    // Goal: each page has a NAME line that indexes can read and the date that was asked for. Method: all pages.
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
