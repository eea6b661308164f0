//! Formats numbers in few characters.

use flatcap_format::units::{SECOND_UNITS, in_fitting_unit};

/// Formats a value in a unit in at most eight characters: `98.1%`, `412M`, `1.50G/s`, `12.3ms`.
pub(super) fn compact(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{}%", short(value)),
        "B" => scaled(value, 1024.0, &["", "K", "M", "G", "T", "P", "E"]),
        "B/s" => format!("{}/s", scaled(value, 1024.0, &["", "K", "M", "G", "T", "P", "E"])),
        "s" if value == 0.0 || value.abs() >= 1.0 => {
            format!("{}s", scaled(value, 1000.0, &["", "k", "M", "G", "T"]))
        }
        "s" => {
            let (value, unit) = in_fitting_unit(SECOND_UNITS, value, 1.0);
            short(value) + unit
        }
        "" => scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"]),
        "/s" => format!("{}/s", scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"])),
        _ => {
            let number = scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
            let room = 8_usize.saturating_sub(number.chars().count());
            number + &unit.chars().take(room).collect::<String>()
        }
    }
}

/// Formats a value without its unit, which is in the column's heading.
pub(super) fn compact_cell(value: f64, unit: &str) -> String {
    compact(value, unit).trim_end_matches("/s").trim_end_matches('%').to_owned()
}

fn scaled(value: f64, base: f64, prefixes: &[&str]) -> String {
    let (mut value, mut prefixes) = (value, prefixes.iter().peekable());
    let mut prefix = prefixes.next().copied().unwrap_or_default();
    // A value that rounds to the base gets the next prefix, for example `1M` instead of `1000k`.
    while value.abs() >= base - 0.5 && prefixes.peek().is_some() {
        value /= base;
        prefix = prefixes.next().copied().unwrap_or_default();
    }
    // Beyond the largest prefix only an exponent keeps the number short.
    if value.abs() >= 1e6 {
        return format!("{value:.1e}");
    }
    format!("{}{prefix}", short(value))
}

/// Formats a number with at most three significant digits: `0`, `0.02`, `1.5`, `98.1`, `412`.
fn short(value: f64) -> String {
    // At or above these limits, another decimal would be a fourth digit after rounding.
    let decimals = match value.abs() {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    // A value that only rounds to 0 must not be shown as 0.
    match text {
        "0" | "-0" if value.abs() > 0.0 => "~0".to_owned(),
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each value fits into eight characters with three digits and its unit, and that a
    // value close to 0 is not shown as 0.
    #[test]
    fn numbers_are_short() {
        for (value, unit, expected) in [
            (0.0, "%", "0%"),
            (98.123, "%", "98.1%"),
            (0.001, "%", "~0%"),
            (400.0, "%", "400%"),
            (412.0 * 1_048_576.0, "B", "412M"),
            (1_610_612_736.0, "B/s", "1.5G/s"),
            (0.0123, "s", "12.3ms"),
            (0.000_002, "s", "2us"),
            (90.0, "s", "90s"),
            (1234.0, "/s", "1.23k/s"),
            (-1.5, "", "-1.5"),
            (999.6, "", "1k"),
            (45.5, "degC", "45.5degC"),
            (f64::MAX, "B/s", "1.6e290/s"),
        ] {
            assert_eq!(compact(value, unit), expected);
        }
        assert_eq!(compact_cell(1234.0, "/s"), "1.23k");
        assert_eq!(compact_cell(98.12, "%"), "98.1");
    }
}
