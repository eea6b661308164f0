//! The table of units. The table contains the units of schemas, and the units that people write in
//! conditions.

use super::scale::Scale;

/// A unit, with its factor and its base unit.
#[derive(Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    /// A value is converted to the base unit by multiplying it by `scale` and dividing it by 10 to
    /// the power of `decimals`.
    pub(super) scale: u64,
    pub(super) decimals: u8,
    /// The base unit, which is `s`, `B`, [`SHARE`] or another unit.
    pub(super) base: &'static str,
    /// Whether views convert values of a field with this unit to the base unit.
    is_converted: bool,
}

const fn of_schemas(name: &'static str, scale: u64, decimals: u8, base: &'static str) -> Unit {
    Unit { name, scale, decimals, base, is_converted: true }
}

const fn written(name: &'static str, scale: u64, decimals: u8, base: &'static str) -> Unit {
    Unit { name, scale, decimals, base, is_converted: false }
}

/// The base unit of a share. In this unit, 100 % is 1. A share of time is a duration per second.
pub(super) const SHARE: &str = "s/s";

/// All units.
// Decimal prefixes of bytes are not in the table, because users confuse 1000 and 1024.
const UNITS: [Unit; 43] = [
    of_schemas("s", 1, 0, "s"),
    of_schemas("ms", 1, 3, "s"),
    of_schemas("us", 1, 6, "s"),
    of_schemas("ns", 1, 9, "s"),
    // `USER_HZ` is 100 on every architecture on which flatcap runs.
    of_schemas("jiffies", 1, 2, "s"),
    written("min", 60, 0, "s"),
    written("h", 3600, 0, "s"),
    written("d", 86_400, 0, "s"),
    of_schemas("bytes", 1, 0, "B"),
    written("B", 1, 0, "B"),
    of_schemas("KiB", 1 << 10, 0, "B"),
    written("MiB", 1 << 20, 0, "B"),
    written("GiB", 1 << 30, 0, "B"),
    written("TiB", 1 << 40, 0, "B"),
    // The kernel counts sectors of this size for any device, whatever its physical sector size is.
    of_schemas("sectors", 512, 0, "B"),
    // A recording does not contain the page size. x86-64 and most arm64 kernels use this page size.
    of_schemas("pages", 4096, 0, "B"),
    of_schemas("%", 1, 2, SHARE),
    of_schemas("m%", 1, 5, SHARE),
    of_schemas("Hz", 1, 0, "Hz"),
    of_schemas("kHz", 1_000, 0, "Hz"),
    written("MHz", 1_000_000, 0, "Hz"),
    written("GHz", 1_000_000_000, 0, "Hz"),
    written("degC", 1, 0, "degC"),
    of_schemas("ddegC", 1, 1, "degC"),
    of_schemas("mdegC", 1, 3, "degC"),
    written("A", 1, 0, "A"),
    of_schemas("mA", 1, 3, "A"),
    of_schemas("uA", 1, 6, "A"),
    written("V", 1, 0, "V"),
    of_schemas("mV", 1, 3, "V"),
    of_schemas("uV", 1, 6, "V"),
    written("W", 1, 0, "W"),
    written("mW", 1, 3, "W"),
    of_schemas("uW", 1, 6, "W"),
    written("J", 1, 0, "J"),
    of_schemas("uJ", 1, 6, "J"),
    written("Ah", 1, 0, "Ah"),
    of_schemas("uAh", 1, 6, "Ah"),
    written("Wh", 1, 0, "Wh"),
    of_schemas("uWh", 1, 6, "Wh"),
    written("USD", 1, 0, "USD"),
    of_schemas("USD/10000", 1, 4, "USD"),
    of_schemas("rpm", 1, 0, "rpm"),
];

impl Unit {
    /// Returns the unit of a field with this value of the attribute `unit`, or `None` for an
    /// unknown unit.
    pub(super) fn of_field(unit: Option<&str>) -> Option<&'static Self> {
        UNITS.iter().find(|known| Some(known.name) == unit)
    }

    /// Returns the longest unit with which the string begins.
    pub(super) fn at_start(text: &str) -> Option<&'static Self> {
        let starts = |unit: &&Self| {
            text.strip_prefix(unit.name)
                .is_some_and(|after| !after.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        UNITS.iter().filter(starts).max_by_key(|unit| unit.name.len())
    }

    /// Returns the factor that converts a value to the base unit.
    #[allow(clippy::cast_precision_loss, reason = "powers of 2 or less than 2^32")]
    pub(super) fn factor(&self) -> f64 {
        self.scale as f64 / 10_f64.powi(self.decimals.into())
    }
}

/// A common unit. The product of a value in the unit of the schema and this factor is a value in
/// the common unit.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonUnit {
    /// The factor.
    pub factor: f64,
    /// The unit, such as `B`, `s`, `%` or `/s`. Empty for a plain number.
    pub name: String,
}

impl CommonUnit {
    /// Returns the unit to which a value of a schema is converted. `is_rate` means that the value
    /// is a change per second. The rate of a time is a share in percent. For processor times, it is
    /// a share of one core.
    pub fn of(unit: Option<&str>, is_rate: bool) -> Self {
        let known = Unit::of_field(unit).filter(|known| known.is_converted);
        let (factor, name) =
            known.map_or((1.0, unit.unwrap_or_default()), |known| (known.factor(), known.base));
        match (name, is_rate) {
            ("s", true) | (SHARE, false) => Self { factor: factor * 100.0, name: "%".to_owned() },
            (SHARE, true) => Self { factor: factor * 100.0, name: "%/s".to_owned() },
            ("J", true) => Self { factor, name: "W".to_owned() },
            (_, true) => Self { factor, name: format!("{name}/s") },
            (_, false) => Self { factor, name: name.to_owned() },
        }
    }

    /// Converts a value.
    pub fn convert(&self, value: f64) -> f64 {
        Scale::of(self.factor).apply(value)
    }

    /// Returns the schema's own unit, without a conversion.
    pub fn own(unit: Option<&str>, is_rate: bool) -> Self {
        let unit = unit.unwrap_or_default();
        Self { factor: 1.0, name: if is_rate { format!("{unit}/s") } else { unit.to_owned() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that rates of times are in percent, that sectors, pages and KiB become bytes, and that
    // an unknown unit does not change.
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
