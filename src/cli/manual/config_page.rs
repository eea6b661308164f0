//! flatcap.toml(5), from config/flatcap.toml, which has every key with its default, unit and range.
//!
//! That file consists of blocks, separated by empty lines. A block is a paragraph; or a table with
//! a paragraph before it and the keys that all tables of its kind have after it; or a key with a
//! paragraph before it.

use clap_mangen::roff::{Roff, bold, roman};

/// Every key with its default. A test compares this file with the built-in defaults.
const KEYS: &str = include_str!("../../../config/flatcap.toml");

/// The parts of the page before and after the keys.
const HEAD: &str = include_str!("../../../deploy/man/flatcap.toml.5.head");
const TAIL: &str = include_str!("../../../deploy/man/flatcap.toml.5.tail");

/// Indentation of an example in a comment.
const EXAMPLE: &str = "    ";

pub(super) fn text() -> String {
    let mut roff = Roff::new();
    // The first block is about the file itself, which HEAD describes.
    for block in KEYS.split("\n\n").skip(1) {
        push_block(&mut roff, block);
    }
    format!("{HEAD}{}{TAIL}", roff.to_roff())
}

fn push_block(roff: &mut Roff, block: &str) {
    let mut comment: Vec<&str> = Vec::new();
    let mut common: Vec<&str> = Vec::new();
    for line in block.lines() {
        if let Some(said) = line.strip_prefix('#') {
            comment.push(said.strip_prefix(' ').unwrap_or(said));
        } else if line.starts_with('[') {
            roff.control("SS", [line]);
            paragraphs(roff, &comment);
            comment.clear();
        } else if comment.is_empty() {
            common.push(line);
        } else if let Some((key, default)) = key(line) {
            entry(roff, key, &comment.join(" "), &format!("The default is {default}."));
            comment.clear();
        }
    }
    if !common.is_empty() {
        roff.control("PP", []);
        roff.text([roman(format!("By default {}.", common.join(", ")))]);
    }
    // A key that depends on another one is shown as a comment, at the end of its block.
    match comment.pop_if(|last| key(last).is_some()).and_then(key) {
        Some((key, default)) => {
            entry(roff, key, &comment.join(" "), &format!("There the default is {default}."));
        }
        None => paragraphs(roff, &comment),
    }
}

/// Splits `name = value`.
fn key(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some((name, value))
}

/// Splits `name: description`, the form of a key that many tables have.
fn common_key(line: &str) -> Option<(&str, &str)> {
    let (name, what) = line.split_once(": ")?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .then_some((name, what))
}

fn entry(roff: &mut Roff, key: &str, what: &str, default: &str) {
    roff.control("TP", []);
    roff.text([bold(key)]);
    roff.text([roman(what)]);
    if !default.is_empty() {
        roff.text([roman(default)]);
    }
}

/// Writes the lines of a comment as paragraphs, entries and examples.
fn paragraphs(roff: &mut Roff, comment: &[&str]) {
    let mut text = String::new();
    let mut example = Vec::new();
    for line in comment.iter().copied().chain([""]) {
        if line.starts_with(EXAMPLE) {
            example.push(line);
            continue;
        }
        if let Some((key, what)) = common_key(line) {
            paragraph(roff, &mut text);
            entry(roff, key, what, "");
            continue;
        }
        if line.is_empty() || !example.is_empty() {
            paragraph(roff, &mut text);
            verbatim(roff, &mut example);
        }
        text = text + line + " ";
    }
}

fn paragraph(roff: &mut Roff, text: &mut String) {
    let said = std::mem::take(text);
    if !said.trim().is_empty() {
        roff.control("PP", []);
        roff.text([roman(said)]);
    }
}

fn verbatim(roff: &mut Roff, lines: &mut Vec<&str>) {
    if lines.is_empty() {
        return;
    }
    roff.control("PP", []);
    roff.control("nf", []);
    for line in lines.drain(..) {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}
