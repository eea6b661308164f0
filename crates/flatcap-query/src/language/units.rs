//! The units to which values of schemas are converted.

use flatcap_format::units::{SHARE, Unit};

use super::scale::Scale;

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
    /// is a change per second. The rate of a duration is a share, in percent. For processor times,
    /// it is a share of one core.
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

    /// Returns the schema's own unit without conversion to a common unit.
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
