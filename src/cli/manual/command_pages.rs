//! Pages of section 1. There is one page for flatcap, and one page per verb. They are generated
//! from the definition of the arguments and from deploy/man/.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use jiff::civil::Date;

use super::ManPage;
use super::roff::wrap;
use crate::cli::{Cli, import};

/// Text for the pages of the verbs that send a command to the running recorder.
const REMOTE_VERBS: &str = include_str!("../../../deploy/man/flatcap-orders.1");

/// Text for the pages of all import formats.
const IMPORT: &str = include_str!("../../../deploy/man/flatcap-import.1");

/// Text that follows the options on the page of each verb. The page of a verb that is not listed
/// has [`STATUS`] instead.
const PROSE: [(&str, &str); 28] = [
    ("flatcap", include_str!("../../../deploy/man/flatcap.1")),
    ("check-config", include_str!("../../../deploy/man/flatcap-check-config.1")),
    ("dump", include_str!("../../../deploy/man/flatcap-dump.1")),
    ("explain", include_str!("../../../deploy/man/flatcap-explain.1")),
    ("export", include_str!("../../../deploy/man/flatcap-export.1")),
    ("flame", include_str!("../../../deploy/man/flatcap-flame.1")),
    ("flush", REMOTE_VERBS),
    ("import", IMPORT),
    ("import-csv", include_str!("../../../deploy/man/flatcap-import-csv.1")),
    ("import-iex-deep", IMPORT),
    ("import-iex-tops", IMPORT),
    ("import-lobster", IMPORT),
    ("import-sar", include_str!("../../../deploy/man/flatcap-import-sar.1")),
    ("import-stream", include_str!("../../../deploy/man/flatcap-import-stream.1")),
    ("info", include_str!("../../../deploy/man/flatcap-info.1")),
    ("log-level", REMOTE_VERBS),
    ("mark", REMOTE_VERBS),
    ("record", include_str!("../../../deploy/man/flatcap-record.1")),
    ("recover", include_str!("../../../deploy/man/flatcap-recover.1")),
    ("reload", REMOTE_VERBS),
    ("replay", include_str!("../../../deploy/man/flatcap-replay.1")),
    ("rotate", REMOTE_VERBS),
    ("compress", include_str!("../../../deploy/man/flatcap-compress.1")),
    ("sources", include_str!("../../../deploy/man/flatcap-sources.1")),
    ("spikes", include_str!("../../../deploy/man/flatcap-spikes.1")),
    ("status", include_str!("../../../deploy/man/flatcap-status.1")),
    ("verify", include_str!("../../../deploy/man/flatcap-verify.1")),
    ("view", include_str!("../../../deploy/man/flatcap-view.1")),
];

/// The exit statuses of every verb, as in flatcap(1).
const STATUS: &str = ".SH EXIT STATUS\n0 done; 1 an error, or nothing could be done; 2 wrong usage or configuration;\n\
    3 done, but with findings: damage, lost samples, or files that cannot be read.\n";

pub(super) fn pages(date: Date) -> Vec<ManPage> {
    // The text after the help of all verbs has a separate section in the manual, so it is removed
    // here.
    let program = Cli::command().disable_help_subcommand(true).after_help(None);
    let mut program = import::with_arguments(program);
    program.build();
    let mut pages = Vec::new();
    add(&mut pages, &program, date);
    pages
}

/// Adds a page for `command` and, recursively, a page for each of its verbs.
fn add(pages: &mut Vec<ManPage>, command: &Command, date: Date) {
    // The `help` verb that clap adds is left out, because it duplicates --help.
    let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
    verbs.for_each(|verb| add(pages, verb, date));
    pages.push(page(command, date));
}

fn page(command: &Command, date: Date) -> ManPage {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let verb = name.strip_prefix("flatcap-").unwrap_or(name);
    let prose = PROSE.iter().find(|(of, _)| *of == verb).map_or(STATUS, |(_, prose)| prose);
    let whole = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    // This line is the text that apropos prints. It is the first part of the sentence.
    let short =
        whole.split([':', ';', ',']).next().and_then(|part| part.split(". ").next()).unwrap_or_default();
    let man = Man::new(command.clone().about(short.to_owned()).long_about(whole.clone()))
        .title(name.to_uppercase())
        .date(date.to_string())
        .source(concat!("flatcap ", env!("CARGO_PKG_VERSION")));
    let mut made = Vec::new();
    man.render(&mut made).expect("writing to memory does not fail");
    // clap_mangen puts the text after the help under the heading EXTRA.
    let made = String::from_utf8_lossy(&made).replace(".SH EXTRA\n", ".SH NOTES\n");
    ManPage { file: format!("{name}.1"), text: wrap(&format!("{made}{prose}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each verb in the table exists, and that its page has the exit status.
    #[test]
    fn prose_is_for_verbs_that_there_are() {
        let pages = pages(jiff::civil::date(2026, 1, 2));
        for (name, text) in PROSE {
            let file = if name == "flatcap" { "flatcap.1".to_owned() } else { format!("flatcap-{name}.1") };
            assert!(pages.iter().any(|page| page.file == file), "{name}");
            assert!(text.contains(".SH EXIT STATUS\n"), "{name}: no exit status");
        }
    }
}
