//! Reads codecs, layouts and compression settings of sources from a table.

use std::str::FromStr;

use flatcap_format::block::{Codec, Layout};
use toml::de::DeValue;

use super::compress::{COMPRESS_SOURCES_MAX, SourceCompressionConfig};
use super::diagnostics::{ParsedValue, nearest};
use super::error::Problem;
use super::expected_value::ExpectedValue;
use super::table_reader::{TableReader, texts, wrong_type};
use crate::sampling::sources::CATALOG;

/// Written instead of a codec to turn compression off.
pub(super) const OFF: &str = "off";

impl TableReader<'_, '_> {
    /// Takes a codec and its level.
    pub(super) fn codec(&mut self, key: &'static str, default: Codec) -> ParsedValue<Codec> {
        self.take(key, ExpectedValue::Codec, default, parsed)
    }

    /// Takes a codec and its level, or [`OFF`].
    pub(super) fn codec_or_off(
        &mut self,
        key: &'static str,
        default: Option<Codec>,
    ) -> ParsedValue<Option<Codec>> {
        self.take(key, ExpectedValue::CodecOrOff, default, |value, wanted| match value {
            DeValue::String(text) if text == OFF => Ok(None),
            value => parsed(value, wanted).map(Some),
        })
    }

    /// Takes a layout of blocks.
    pub(super) fn layout(&mut self, key: &'static str, default: Layout) -> ParsedValue<Layout> {
        self.take(key, ExpectedValue::Keyword(vec!["row", "columnar"]), default, parsed)
    }

    /// Takes a list of compression settings of sources; empty by default.
    pub(super) fn source_compression(
        &mut self,
        key: &'static str,
    ) -> ParsedValue<Vec<SourceCompressionConfig>> {
        self.take(key, ExpectedValue::Compression, Vec::new(), |value, wanted| {
            let mut ways: Vec<SourceCompressionConfig> = Vec::new();
            for text in texts(value, &wanted)? {
                let bad = |reason| Problem::BadCompression { reason, wanted: wanted.clone() };
                let way: SourceCompressionConfig = text.parse().map_err(bad)?;
                // A misspelt name would otherwise silently leave the source with the general codec.
                if !way.names_a_source() {
                    let known: Vec<String> = CATALOG.iter().map(|spec| spec.name.to_owned()).collect();
                    let near = nearest(&way.name, known.iter().map(String::as_str));
                    return Err(Problem::UnknownSource { near, known });
                }
                if ways.iter().any(|other| other.name == way.name) {
                    return Err(Problem::DuplicateItem { item: way.name });
                }
                ways.push(way);
            }
            if ways.len() > COMPRESS_SOURCES_MAX { Err(Problem::TooLarge { wanted }) } else { Ok(ways) }
        })
    }
}

/// Parses a string with [`FromStr`].
fn parsed<T: FromStr>(value: DeValue<'_>, wanted: ExpectedValue) -> Result<T, Problem> {
    match value {
        DeValue::String(text) => text.parse().map_err(|_| Problem::NotAllowed { wanted }),
        other => Err(wrong_type(&other, wanted)),
    }
}
