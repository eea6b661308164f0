//! The page flatcap.toml(5), which is generated from the reference of the configuration.

use clap_mangen::roff::{Roff, bold, roman};

use crate::config::{ReferenceKey, ReferencePart, reference};

/// The parts of the page before and after the keys.
const HEAD: &str = include_str!("../../../deploy/man/flatcap.toml.5.head");
const TAIL: &str = include_str!("../../../deploy/man/flatcap.toml.5.tail");

pub(super) fn text() -> String {
    let mut roff = Roff::new();
    for part in reference() {
        match part {
            ReferencePart::Text(text) => paragraph(&mut roff, &text),
            ReferencePart::Example(text) => {
                roff.control("PP", []);
                roff.control("nf", []);
                for line in text.lines() {
                    roff.text([roman(line)]);
                }
                roff.control("fi", []);
            }
            ReferencePart::Table { name, about } => {
                roff.control("SS", [format!("[{name}]").as_str()]);
                paragraph(&mut roff, about);
            }
            ReferencePart::Defaults(lines) => {
                paragraph(&mut roff, &format!("By default {}.", lines.join(", ")));
            }
            ReferencePart::Key(key) | ReferencePart::Entry(key) => entry(&mut roff, &key),
        }
    }
    format!("{HEAD}{}{TAIL}", roff.to_roff())
}

fn paragraph(roff: &mut Roff, text: &str) {
    if !text.is_empty() {
        roff.control("PP", []);
        roff.text([roman(text)]);
    }
}

fn entry(roff: &mut Roff, key: &ReferenceKey) {
    roff.control("TP", []);
    roff.text([bold(key.name)]);
    roff.text([roman(&key.description)]);
    if let Some(default) = &key.default {
        let there = if key.is_unused { "There the" } else { "The" };
        roff.text([roman(format!("{there} default is {default}."))]);
    }
}
