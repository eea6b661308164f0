//! Reads the output of sadf -j. Only one entry of statistics is in memory at a time.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::text::LineNumber;
use super::value::SarValue;
use crate::limited_input::ElementBudget;

/// The properties of a host, which precede its statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SarHost {
    /// Index of the host among the hosts of the document.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) release: String,
    pub(super) machine: String,
    /// The time zone of the host, as the document names it.
    pub(super) zone: String,
    /// The date of all statistics. mpstat, iostat and pidstat print the date once per host.
    pub(super) date: String,
}

/// Receives the contents of a document, in the order of the document.
pub(super) trait SarConsumer {
    /// Receives the statistics of one time. The entry of these statistics begins on line `line`.
    /// Returns false to stop reading.
    fn statistics(&mut self, host: &SarHost, entry: &SarValue, line: u64) -> bool;

    /// Counts entries that are not statistics, that is, `restarts` and `comments`.
    fn other(&mut self, what: &str, count: u64);
}

/// The error message with which a consumer stops the parser.
const ENDED: &str = "ended by the consumer";

/// A document that is read for a consumer.
pub(super) struct SarDocument<'c> {
    pub(super) consumer: &'c mut dyn SarConsumer,
    pub(super) budget: ElementBudget,
    pub(super) line: LineNumber,
}

/// Deserializes an entry of statistics, and returns the line in which it begins.
struct EntrySeed<'l>(&'l LineNumber);

impl<'de> DeserializeSeed<'de> for EntrySeed<'_> {
    type Value = (SarValue, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(SarValue, u64), D::Error> {
        let line = self.0.get();
        Ok((SarValue::deserialize(deserializer)?, line))
    }
}

/// A position in a document. Deserializes the content at this position.
struct SarPlace<'d, 'c> {
    document: &'d mut SarDocument<'c>,
    level: SarLevel,
    host: SarHost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SarLevel {
    Document,
    Sysstat,
    Hosts,
    Host,
    Statistics,
}

impl<'de> DeserializeSeed<'de> for SarDocument<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        let place = SarPlace { document: &mut self, level: SarLevel::Document, host: SarHost::default() };
        place.deserialize(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for SarPlace<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.level {
            SarLevel::Hosts | SarLevel::Statistics => deserializer.deserialize_seq(self),
            SarLevel::Document | SarLevel::Sysstat | SarLevel::Host => deserializer.deserialize_map(self),
        }
    }
}

impl<'c> SarPlace<'_, 'c> {
    /// Returns a position one level deeper.
    fn below(&mut self, level: SarLevel, host: SarHost) -> SarPlace<'_, 'c> {
        SarPlace { document: &mut *self.document, level, host }
    }
}

impl<'de> Visitor<'de> for SarPlace<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            SarLevel::Document => "an object with \"sysstat\", as sadf -j prints it",
            SarLevel::Sysstat => "an object with \"hosts\"",
            SarLevel::Hosts => "a list of hosts",
            SarLevel::Host => "an object with \"statistics\"",
            SarLevel::Statistics => "a list of statistics",
        })
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut is_known = false;
        while let Some(name) = members.next_key::<String>()? {
            let below = match (self.level, &*name) {
                (SarLevel::Document, "sysstat") => Some(SarLevel::Sysstat),
                (SarLevel::Sysstat, "hosts") => Some(SarLevel::Hosts),
                (SarLevel::Host, "statistics") => Some(SarLevel::Statistics),
                _ => None,
            };
            is_known |= below.is_some();
            match (self.level, below, &*name) {
                (_, Some(level), _) => {
                    let host = self.host.clone();
                    members.next_value_seed(self.below(level, host))?;
                }
                (SarLevel::Host, None, "nodename") => self.host.name = members.next_value()?,
                (SarLevel::Host, None, "release") => self.host.release = members.next_value()?,
                (SarLevel::Host, None, "machine") => self.host.machine = members.next_value()?,
                (SarLevel::Host, None, "timezone") => self.host.zone = members.next_value()?,
                (SarLevel::Host, None, "date") => self.host.date = members.next_value()?,
                (SarLevel::Host, None, "restarts" | "comments") => {
                    let entries = members.next_value::<Vec<IgnoredAny>>()?;
                    self.document.consumer.other(&name, entries.len() as u64);
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        if is_known { Ok(()) } else { Err(A::Error::custom(format_args!("it is not {}", Expected(&self)))) }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let mut number = 0;
        loop {
            self.document.budget.renew();
            if self.level == SarLevel::Hosts {
                let host = SarHost { number, ..SarHost::default() };
                if elements.next_element_seed(self.below(SarLevel::Host, host))?.is_none() {
                    return Ok(());
                }
                number += 1;
                continue;
            }
            let entry = elements.next_element_seed(EntrySeed(&self.document.line))?;
            let Some((entry, line)) = entry else { return Ok(()) };
            if !self.document.consumer.statistics(&self.host, &entry, line) {
                return Err(A::Error::custom(ENDED));
            }
        }
    }
}

/// Displays the content that is expected at a position.
struct Expected<'p, 'd, 'c>(&'p SarPlace<'d, 'c>);

impl fmt::Display for Expected<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Visitor::expecting(self.0, f)
    }
}
