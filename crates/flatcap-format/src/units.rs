//! The table of units of measurement, with their conversion factors. The table contains the units
//! of schemas, the units that people write in settings and conditions, and the units in which
//! numbers are printed.

/// A unit, with its factor and its base unit.
#[derive(Debug, PartialEq)]
pub struct Unit {
    /// The name, such as `ms`.
    pub name: &'static str,
    /// A value is converted to the base unit by multiplying it by `scale` and dividing it by 10 to
    /// the power of `decimals`.
    pub scale: u64,
    /// The exponent of the power of 10 by which a value is divided.
    pub decimals: u8,
    /// The base unit, which is `s`, `B`, [`SHARE`] or another unit.
    pub base: &'static str,
    /// Whether views convert values of a field with this unit to the base unit.
    pub is_converted: bool,
}

const fn of_schemas(name: &'static str, scale: u64, decimals: u8, base: &'static str) -> Unit {
    Unit { name, scale, decimals, base, is_converted: true }
}

const fn written(name: &'static str, scale: u64, decimals: u8, base: &'static str) -> Unit {
    Unit { name, scale, decimals, base, is_converted: false }
}

/// The base unit of a share. In this unit, 100 % is 1. A share of time is a duration per second.
pub const SHARE: &str = "s/s";

/// Units of time, the smallest first.
pub static TIME_UNITS: [Unit; 7] = [
    of_schemas("ns", 1, NS_DECIMALS, "s"),
    of_schemas("us", 1, 6, "s"),
    of_schemas("ms", 1, 3, "s"),
    of_schemas("s", 1, 0, "s"),
    written("min", 60, 0, "s"),
    written("h", 3600, 0, "s"),
    written("d", 86_400, 0, "s"),
];

/// Seconds and their decimal parts, the smallest first.
pub const SECOND_UNITS: &[Unit] = TIME_UNITS.split_at(4).0;

const NS_DECIMALS: u8 = 9;

/// Units of size, the smallest first.
// Decimal prefixes are not in the table, because users confuse 1000 and 1024.
pub static SIZE_UNITS: [Unit; 7] = [
    written("B", 1, 0, "B"),
    of_schemas("KiB", 1 << 10, 0, "B"),
    written("MiB", 1 << 20, 0, "B"),
    written("GiB", 1 << 30, 0, "B"),
    written("TiB", 1 << 40, 0, "B"),
    written("PiB", 1 << 50, 0, "B"),
    written("EiB", 1 << 60, 0, "B"),
];

/// Units of size that people can write in settings and conditions, the smallest first.
pub const WRITTEN_SIZE_UNITS: &[Unit] = SIZE_UNITS.split_at(5).0;

static OTHER_UNITS: [Unit; 31] = [
    // `USER_HZ` is 100 on every architecture on which flatcap runs.
    of_schemas("jiffies", 1, 2, "s"),
    of_schemas("bytes", 1, 0, "B"),
    // The kernel counts sectors of 512 bytes for every device, whatever the physical sector size of
    // the device is.
    of_schemas("sectors", 512, 0, "B"),
    // A recording does not contain the page size. The size of 4096 bytes is correct for x86-64 and
    // for most arm64 kernels.
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
    /// Returns all units of schemas and conditions.
    fn all() -> impl Iterator<Item = &'static Self> {
        TIME_UNITS.iter().chain(WRITTEN_SIZE_UNITS).chain(&OTHER_UNITS)
    }

    /// Returns the unit of a field with this value of the attribute `unit`, or `None` for an
    /// unknown unit.
    pub fn of_field(unit: Option<&str>) -> Option<&'static Self> {
        Self::all().find(|known| Some(known.name) == unit)
    }

    /// Returns the longest unit with which the string begins.
    pub fn at_start(text: &str) -> Option<&'static Self> {
        let starts = |unit: &&Self| {
            text.strip_prefix(unit.name)
                .is_some_and(|after| !after.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        Self::all().filter(starts).max_by_key(|unit| unit.name.len())
    }

    /// Returns the factor that converts a value to the base unit.
    pub fn factor(&self) -> f64 {
        self.to_base(1.0)
    }

    #[allow(clippy::cast_precision_loss, reason = "powers of 2 or less than 2^32")]
    fn to_base(&self, value: f64) -> f64 {
        value * self.scale as f64 / 10_f64.powi(self.decimals.into())
    }

    #[allow(clippy::cast_precision_loss, reason = "powers of 2 or less than 2^32")]
    fn of_base(&self, value: f64) -> f64 {
        value * 10_f64.powi(self.decimals.into()) / self.scale as f64
    }

    /// Returns the number of nanoseconds or bytes in this unit of time or size.
    pub(crate) fn in_smallest(&self) -> u64 {
        let decimals = if self.base == "s" { NS_DECIMALS } else { 0 };
        self.scale * 10_u64.pow(decimals.saturating_sub(self.decimals).into())
    }
}

/// Returns the largest unit of `units` in which `value`, given in base units, is at least `least`.
/// If there is no such unit, returns the first unit, which must be the smallest.
pub fn fitting_unit(units: &'static [Unit], value: f64, least: f64) -> Option<&'static Unit> {
    units.iter().rev().find(|unit| value.abs() >= unit.to_base(least)).or(units.first())
}

/// Converts a value from base units to the unit of [`fitting_unit`]. Returns the value and the name
/// of the unit.
pub fn in_fitting_unit(units: &'static [Unit], value: f64, least: f64) -> (f64, &'static str) {
    fitting_unit(units, value, least).map_or((value, ""), |unit| (unit.of_base(value), unit.name))
}

/// Formats a number of nanoseconds or bytes in the largest unit of `units` that needs no fraction,
/// for example `1500ms`. The first unit must be the smallest.
pub fn in_exact_unit(units: &'static [Unit], number: u64) -> String {
    let exact = units.iter().rev().find(|unit| number.is_multiple_of(unit.in_smallest()));
    exact.map_or_else(|| number.to_string(), |unit| format!("{}{}", number / unit.in_smallest(), unit.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // Proves that each list is ordered by size, that each partial list ends with the expected unit,
    // and that each name occurs once.
    #[test]
    fn units_are_in_order() {
        for units in [&TIME_UNITS, &SIZE_UNITS] {
            assert!(units.is_sorted_by_key(Unit::in_smallest) && units[0].in_smallest() == 1);
        }
        let last = [SECOND_UNITS, WRITTEN_SIZE_UNITS].map(|units| units.last().unwrap().name);
        assert_eq!(last, ["s", "TiB"]);
        let names: BTreeSet<&str> = Unit::all().map(|unit| unit.name).collect();
        assert_eq!(names.len(), Unit::all().count());
    }
}
