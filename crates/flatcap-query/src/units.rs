//! Units for people: converts values in the unit of a schema to a common unit.

/// Bytes of a sector in the kernel's counters, for any device.
const SECTOR_BYTES: f64 = 512.0;
/// Bytes of a page.
// A recording does not contain the page size. x86-64 and most arm64 kernels use this one.
const PAGE_BYTES: f64 = 4096.0;
/// Seconds of a jiffy in /proc.
// `USER_HZ` is 100 on every architecture that flatcap runs on.
const JIFFY_S: f64 = 0.01;

/// The units of schemas, each with its factor and its common unit.
const KNOWN_UNITS: [(&str, f64, &str); 25] = [
    ("jiffies", JIFFY_S, "s"),
    ("s", 1.0, "s"),
    ("ms", 1e-3, "s"),
    ("us", 1e-6, "s"),
    ("ns", 1e-9, "s"),
    ("bytes", 1.0, "B"),
    ("KiB", 1024.0, "B"),
    ("sectors", SECTOR_BYTES, "B"),
    ("pages", PAGE_BYTES, "B"),
    ("Hz", 1.0, "Hz"),
    ("kHz", 1e3, "Hz"),
    ("%", 1.0, "%"),
    ("m%", 1e-3, "%"),
    ("ddegC", 0.1, "degC"),
    ("mdegC", 1e-3, "degC"),
    ("mA", 1e-3, "A"),
    ("uA", 1e-6, "A"),
    ("mV", 1e-3, "V"),
    ("uV", 1e-6, "V"),
    ("uW", 1e-6, "W"),
    ("uJ", 1e-6, "J"),
    ("uAh", 1e-6, "Ah"),
    ("uWh", 1e-6, "Wh"),
    ("USD/10000", 1e-4, "USD"),
    ("rpm", 1.0, "rpm"),
];

/// A common unit. A value of the schema times the factor is in this unit.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonUnit {
    /// The factor.
    pub factor: f64,
    /// The unit: `B`, `s`, `%`, `/s`; empty for a plain number.
    pub name: String,
}

impl CommonUnit {
    /// Returns the unit to which a value of a schema is converted. `is_rate` means that the value
    /// is a change per second. The rate of a time is a share in percent: for processor times, of a
    /// core.
    pub fn of(unit: Option<&str>, is_rate: bool) -> Self {
        let unit = unit.unwrap_or_default();
        let known = KNOWN_UNITS.iter().find(|(name, ..)| *name == unit);
        let (factor, name) = known.map_or((1.0, unit), |(_, factor, name)| (*factor, *name));
        match (name, is_rate) {
            ("s", true) => Self { factor: factor * 100.0, name: "%".to_owned() },
            ("J", true) => Self { factor, name: "W".to_owned() },
            (_, true) => Self { factor, name: format!("{name}/s") },
            (_, false) => Self { factor, name: name.to_owned() },
        }
    }

    /// Converts a value.
    pub fn convert(&self, value: f64) -> f64 {
        // All factors below 1 are the reciprocal of an integer. Division by the integer is exact
        // more often.
        if self.factor < 1.0 { value / (1.0 / self.factor).round() } else { value * self.factor }
    }

    /// Returns the schema's own unit, unconverted.
    pub fn own(unit: Option<&str>, is_rate: bool) -> Self {
        let unit = unit.unwrap_or_default();
        Self { factor: 1.0, name: if is_rate { format!("{unit}/s") } else { unit.to_owned() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that times as rates are percent, that sectors, pages and KiB are bytes, and that an
    // unknown unit stays as it is.
    #[test]
    fn values_become_common_units() {
        for (unit, is_rate, value, expected, name) in [
            (Some("jiffies"), true, 98.0, 98.0, "%"),
            (Some("us"), true, 603_425.0, 60.3425, "%"),
            (Some("ns"), true, 1e9, 100.0, "%"),
            (Some("ms"), false, 12.0, 0.012, "s"),
            (Some("sectors"), true, 2.0, 1024.0, "B/s"),
            (Some("pages"), false, 3.0, 12_288.0, "B"),
            (Some("KiB"), false, 2.0, 2048.0, "B"),
            (Some("uJ"), true, 15e6, 15.0, "W"),
            (Some("mdegC"), false, 45_500.0, 45.5, "degC"),
            (Some("shares"), false, 7.0, 7.0, "shares"),
            (None, true, 5.0, 5.0, "/s"),
            (None, false, 5.0, 5.0, ""),
        ] {
            let common = CommonUnit::of(unit, is_rate);
            assert!(
                common.convert(value).total_cmp(&expected).is_eq(),
                "{unit:?}: {}",
                common.convert(value)
            );
            assert_eq!(common.name, name, "{unit:?}");
        }
        assert_eq!(CommonUnit::own(Some("us"), true), CommonUnit { factor: 1.0, name: "us/s".to_owned() });
    }
}
