//! Section 1: flatcap and one page a verb, from the definition of the arguments and what deploy/man/ adds.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use jiff::civil::Date;

use super::Page;
use super::roff::fill;
use crate::cli::Cli;

/// What the verbs that tell the running agent to do something have in common.
const ORDERS: &str = include_str!("../../../deploy/man/flatcap-orders.1");

/// What all imports have in common.
const IMPORT: &str = include_str!("../../../deploy/man/flatcap-import.1");

/// What a verb's page says behind its options. A verb that is not here has [`STATUS`].
const PROSE: [(&str, &str); 22] = [
    ("flatcap", include_str!("../../../deploy/man/flatcap.1")),
    ("check-config", include_str!("../../../deploy/man/flatcap-check-config.1")),
    ("dump", include_str!("../../../deploy/man/flatcap-dump.1")),
    ("export", include_str!("../../../deploy/man/flatcap-export.1")),
    ("flush", ORDERS),
    ("import", IMPORT),
    ("import-iex-deep", IMPORT),
    ("import-iex-tops", IMPORT),
    ("import-lobster", IMPORT),
    ("import-stream", include_str!("../../../deploy/man/flatcap-import-stream.1")),
    ("info", include_str!("../../../deploy/man/flatcap-info.1")),
    ("log-level", ORDERS),
    ("mark", ORDERS),
    ("record", include_str!("../../../deploy/man/flatcap-record.1")),
    ("recover", include_str!("../../../deploy/man/flatcap-recover.1")),
    ("reload", ORDERS),
    ("replay", include_str!("../../../deploy/man/flatcap-replay.1")),
    ("rotate", ORDERS),
    ("seal", include_str!("../../../deploy/man/flatcap-seal.1")),
    ("sources", include_str!("../../../deploy/man/flatcap-sources.1")),
    ("status", include_str!("../../../deploy/man/flatcap-status.1")),
    ("verify", include_str!("../../../deploy/man/flatcap-verify.1")),
];

/// The exit status of every verb, as flatcap(1) explains it.
const STATUS: &str = ".SH EXIT STATUS\n0 done; 1 failed; 2 wrong usage or configuration;\n\
    3 done, but something is wrong with the data.\n";

pub(super) fn pages(date: Date) -> Vec<Page> {
    // What is said of all verbs at the end of the help has a section of its own.
    let mut program = Cli::command().disable_help_subcommand(true).after_help(None);
    program.build();
    let mut pages = Vec::new();
    add(&mut pages, &program, date);
    pages
}

/// A page for each verb below `command`, for those below it, and its own.
fn add(pages: &mut Vec<Page>, command: &Command, date: Date) {
    // What clap adds to a verb that has others below it is said by --help.
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    verbs.for_each(|verb| add(pages, verb, date));
    pages.push(page(command, date));
}

fn page(command: &Command, date: Date) -> Page {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let verb = name.strip_prefix("flatcap-").unwrap_or(name);
    let prose = PROSE.iter().find(|(of, _)| *of == verb).map_or(STATUS, |(_, prose)| prose);
    let whole = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    // What apropos prints: the first part of the sentence.
    let short =
        whole.split([':', ';', ',']).next().and_then(|part| part.split(". ").next()).unwrap_or_default();
    let man = Man::new(command.clone().about(short.to_owned()).long_about(whole.clone()))
        .title(name.to_uppercase())
        .date(date.to_string())
        .source(concat!("flatcap ", env!("CARGO_PKG_VERSION")));
    let mut made = Vec::new();
    man.render(&mut made).expect("writing to memory does not fail");
    // What a verb says behind its help has no name of its own there.
    let made = String::from_utf8_lossy(&made).replace(".SH EXTRA\n", ".SH NOTES\n");
    Page { file: format!("{name}.1"), text: fill(&format!("{made}{prose}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: no prose is for a verb that is not there. Method: each name in the table against the definition.
    #[test]
    fn prose_is_for_verbs_that_there_are() {
        let pages = pages(jiff::civil::date(2026, 1, 2));
        for (name, text) in PROSE {
            let file = if name == "flatcap" { "flatcap.1".to_owned() } else { format!("flatcap-{name}.1") };
            assert!(pages.iter().any(|page| page.file == file), "{name}");
            assert!(text.contains(".SH EXIT STATUS\n"), "{name}: every page tells its exit status");
        }
    }
}
