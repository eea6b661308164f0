//! The help of the program, in which the verbs are grouped by purpose. clap can group options, but
//! not verbs.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::{Command, CommandFactory};

use super::Cli;

/// The verbs of each purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Record", &["record", "sources", "check-config", "check-trigger", "recover", "compress"]),
    ("Ask a recording", &["info", "verify", "dump", "fields", "spikes", "explain", "marks", "snapshots"]),
    ("View", &["view", "flame"]),
    ("Share", &["export", "import", "replay"]),
    ("Control a running recorder", &["status", "mark", "snapshot", "reload", "rotate", "flush", "log-level"]),
    ("Others", &["completions", "manual", "help"]),
];

/// Returns the program's command, whose help groups the verbs.
pub(super) fn command() -> Command {
    let program = Cli::command();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{options}}{{after-help}}",
        headings(&program)
    );
    program.help_template(StyledStr::from(template))
}

/// Returns the verbs and their descriptions. This is the part of the help before the heading of the
/// options.
fn headings(program: &Command) -> String {
    let style = program.get_styles();
    let (header, literal) = (style.get_header(), style.get_literal());
    // clap adds `help` only when it parses the arguments, so the verb does not exist yet.
    let about = |name: &str| match program.find_subcommand(name) {
        Some(verb) => verb.get_about().map(ToString::to_string),
        None if name == "help" => Some("Print this message or the help of a verb".to_owned()),
        None => None,
    };
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "{line}");
    };
    for (heading, names) in GROUPS {
        line(format_args!("{header}{heading}:{header:#}"));
        // If the build lacks a feature, the verb of the feature is missing.
        for (name, about) in names.iter().filter_map(|name| Some((name, about(name)?))) {
            line(format_args!("  {literal}{name}{literal:#}{:pad$}  {about}", "", pad = width - name.len()));
        }
        line(format_args!(""));
    }
    line(format_args!("{header}Options:{header:#}"));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // Proves that every verb of the program is in exactly one group, and that the groups contain
    // only verbs.
    #[test]
    fn every_verb_is_in_one_group() {
        let mut program = Cli::command();
        program.build();
        let verbs: BTreeSet<&str> = program.get_subcommands().map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let distinct: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(distinct.len(), grouped.len(), "a verb is in two groups: {grouped:?}");
        let missing: Vec<_> = verbs.difference(&distinct).collect();
        let unknown: Vec<_> =
            distinct.difference(&verbs).filter(|verb| cfg!(feature = "view") || **verb != "view").collect();
        assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
    }
}
