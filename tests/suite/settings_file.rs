//! config/flatcap.toml: the reference of the configuration, as a configuration file.

use flatcap::config::{ReferencePart, reference};

/// Width of the file, in columns.
const COLUMNS_MAX: usize = 100;

const HEAD: &str = "\
# flatcap: every setting with its default. A file needs only the settings that differ from the
# defaults; without a file, all defaults apply. A key that is not listed here is an error.
# \"flatcap check-config FILE\" prints the settings in effect, or every mistake.
#
# The files conf.d/*.toml beside this file override it, in the order of their names, and environment
# variables override them: FLATCAP_STORAGE__SEGMENT_SIZE=64MiB sets segment_size in [storage].
# Tables are merged key by key; lists are replaced.
#
# A duration is a number and a unit, ns, us, ms, s, m, h or d: \"250us\", \"10ms\", \"1.5s\", \"7d\".
# Longer names and sums are accepted too: \"90sec\", \"1h 30min\".
# A size is a number and a unit, B, KiB, MiB, GiB or TiB (1024-based): \"64KiB\", \"1.5GiB\".
";

/// Returns the reference as a configuration file: config/flatcap.toml.
pub fn settings_file() -> String {
    let mut file = HEAD.to_owned();
    let mut before = None;
    for part in reference() {
        if !before.is_some_and(|before| is_one_block(&before, &part)) {
            file.push('\n');
        }
        before = Some(part.clone());
        match part {
            ReferencePart::Text(text) => push_comment(&mut file, &text),
            ReferencePart::Example(text) => file.extend(text.lines().map(|line| format!("# {line}\n"))),
            ReferencePart::Table { name, about } => {
                push_comment(&mut file, about);
                file.extend(["[", name.as_str(), "]\n"]);
            }
            ReferencePart::Defaults(lines) => file.extend(lines.into_iter().map(|line| line + "\n")),
            ReferencePart::Key(key) => {
                let (mark, remark) =
                    if key.is_unused { ("# ", " This is the default then.") } else { ("", "") };
                push_comment(&mut file, &(key.description + remark));
                let default = key.default.unwrap_or_default();
                file.extend([mark, key.name, " = ", &default, "\n"]);
            }
            ReferencePart::Entry(key) => {
                let default = key.default.map(|default| format!(" The default is {default}."));
                let mut description = key.description;
                description[..1].make_ascii_lowercase();
                push_comment(
                    &mut file,
                    &format!("{}: {description}{}", key.name, default.unwrap_or_default()),
                );
            }
        }
    }
    file
}

/// Returns whether no empty line separates two parts.
fn is_one_block(before: &ReferencePart, part: &ReferencePart) -> bool {
    use ReferencePart::{Defaults, Entry, Key, Table, Text};
    matches!((before, part), (Table { .. }, Key(_) | Defaults(_)) | (Text(_) | Entry(_), Entry(_)))
}

/// Adds a text as a comment, wrapped at the width of the file.
fn push_comment(file: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() <= COLUMNS_MAX {
            file.push(' ');
            column += 1;
        } else {
            file.push_str(if column == 0 { "# " } else { "\n# " });
            column = 2;
        }
        file.push_str(word);
        column += word.len();
    }
    if column > 0 {
        file.push('\n');
    }
}
