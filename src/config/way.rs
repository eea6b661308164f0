//! How are codecs, layouts and ways of packing taken from a table?

use std::str::FromStr;

use toml::de::DeValue;

use super::error::Problem;
use super::seal::{SEAL_SOURCES_MAX, SealSource};
use super::source::SourceName;
use super::table::{Table, texts, wrong_type};
use super::walk::{Given, nearest};
use super::wanted::Wanted;
use crate::block::{Codec, Layout};

/// Said instead of a codec where nothing is packed.
pub(super) const OFF: &str = "off";

impl Table<'_, '_> {
    /// Takes a codec and its level.
    pub(super) fn codec(&mut self, key: &'static str, default: Codec) -> Given<Codec> {
        self.take(key, Wanted::Codec, default, parsed)
    }

    /// Takes a codec and its level, or the word for none at all.
    pub(super) fn codec_or_off(&mut self, key: &'static str, default: Option<Codec>) -> Given<Option<Codec>> {
        self.take(key, Wanted::CodecOrOff, default, |value, wanted| match value {
            DeValue::String(text) if text == OFF => Ok(None),
            value => parsed(value, wanted).map(Some),
        })
    }

    /// Takes a layout of blocks.
    pub(super) fn layout(&mut self, key: &'static str, default: Layout) -> Given<Layout> {
        self.take(key, Wanted::Word(vec!["row", "columnar"]), default, parsed)
    }

    /// Takes ways in which sources are packed; none where the file gives none.
    pub(super) fn ways(&mut self, key: &'static str) -> Given<Vec<SealSource>> {
        self.take(key, Wanted::Ways, Vec::new(), |value, wanted| {
            let mut ways: Vec<SealSource> = Vec::new();
            for text in texts(value, &wanted)? {
                let bad = |reason| Problem::BadWay { reason, wanted: wanted.clone() };
                let way: SealSource = text.parse().map_err(bad)?;
                if !way.is_of_a_source() {
                    let known: Vec<String> =
                        SourceName::ALL.iter().map(|name| name.as_str().to_owned()).collect();
                    let near = nearest(&way.name, known.iter().map(String::as_str));
                    return Err(Problem::UnknownSource { near, known });
                }
                if ways.iter().any(|other| other.name == way.name) {
                    return Err(Problem::WordTwice { word: way.name });
                }
                ways.push(way);
            }
            if ways.len() > SEAL_SOURCES_MAX { Err(Problem::TooLarge { wanted }) } else { Ok(ways) }
        })
    }
}

/// A text that reads as a value of its own kind.
fn parsed<T: FromStr>(value: DeValue<'_>, wanted: Wanted) -> Result<T, Problem> {
    match value {
        DeValue::String(text) => text.parse().map_err(|_| Problem::NotAllowed { wanted }),
        other => Err(wrong_type(&other, wanted)),
    }
}
