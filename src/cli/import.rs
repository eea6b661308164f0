//! `import`: passes its arguments to the program `flatcap-convert`, which contains the importers.

use std::ffi::OsString;

use super::ExitStatus;
use super::convert_program;
use super::error::CliError;

/// The name of the verb, which is the same in `flatcap-convert`.
pub(super) const VERB: &str = "import";

/// Import recordings from other formats.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// The format and its options.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Converts `help import FORMAT` to `import FORMAT --help`, because only `flatcap-convert` has the
/// help text.
pub(super) fn with_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_help = arguments.get(1).is_some_and(|verb| verb == "help");
    let is_of_import = arguments.get(2).is_some_and(|verb| verb == VERB);
    let is_format = |word: &OsString| !word.as_encoded_bytes().starts_with(b"-");
    if is_help && is_of_import && arguments.len() <= 4 && arguments.get(3).is_none_or(is_format) {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

pub(super) fn run(args: &Args) -> Result<ExitStatus, CliError> {
    convert_program::run(VERB, &args.arguments)
}

/// Replaces the verb's definition by the complete definition of the importers. The manual pages and
/// the completions are made from it.
#[cfg(feature = "manual")]
pub(super) fn with_arguments(program: clap::Command) -> clap::Command {
    use clap::Args as _;
    use flatcap_import::command::ImportArguments;

    program.mut_subcommands(|verb| match verb.get_name() {
        VERB => {
            ImportArguments::augment_args(clap::Command::new(VERB).display_order(verb.get_display_order()))
        }
        _ => verb,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the conversion changes only the help of this verb, with or without a format.
    #[test]
    fn help_is_asked_from_the_program() {
        let changed = |words: &[&str]| {
            let changed = with_help(words.iter().map(OsString::from).collect());
            changed.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(changed(&["flatcap", "help", "import"]), "flatcap import --help");
        assert_eq!(changed(&["flatcap", "help", "import", "csv"]), "flatcap import csv --help");
        for unchanged in [
            &["flatcap", "help"][..],
            &["flatcap", "help", "export"],
            &["flatcap", "import", "help"],
            &["flatcap", "help", "import", "--help"],
            &["flatcap", "help", "import", "csv", "x"],
        ] {
            assert_eq!(changed(unchanged), unchanged.join(" "));
        }
    }
}
