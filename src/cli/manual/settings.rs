//! flatcap.toml(5), from config/flatcap.toml, which shows every key with its default, unit and range.
//!
//! That file keeps to a form: blocks between empty lines. A block is a paragraph; or a table, its paragraph in front and keys
//! with what all tables say of them behind; or a key with its paragraph in front.

use clap_mangen::roff::{Roff, bold, roman};

/// Every key, in the file that a test holds against the defaults.
const KEYS: &str = include_str!("../../../config/flatcap.toml");

/// What stands in front of the keys and behind them.
const HEAD: &str = include_str!("../../../deploy/man/flatcap.toml.5.head");
const TAIL: &str = include_str!("../../../deploy/man/flatcap.toml.5.tail");

/// An indented line of a comment is an example.
const EXAMPLE: &str = "    ";

pub(super) fn text() -> String {
    let mut roff = Roff::new();
    // The first block is about the file itself, and HEAD says it.
    for block in KEYS.split("\n\n").skip(1) {
        show(&mut roff, block);
    }
    format!("{HEAD}{}{TAIL}", roff.to_roff())
}

fn show(roff: &mut Roff, block: &str) {
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
    // A key that is only there beside another one is shown as a comment, at the end of its block.
    match comment.pop_if(|last| key(last).is_some()).and_then(key) {
        Some((key, default)) => {
            entry(roff, key, &comment.join(" "), &format!("There the default is {default}."));
        }
        None => paragraphs(roff, &comment),
    }
}

/// `name = value`, split.
fn key(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some((name, value))
}

/// `name: what it is`, split: a key that many tables have.
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

/// Lines of a comment as paragraphs, entries and examples.
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
