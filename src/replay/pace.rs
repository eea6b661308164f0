//! When a replayed frame is due. Pure: time is handed in.

use std::fmt;
use std::str::FromStr;

/// How fast a recording is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// This many times its recorded pace; above 0.
    Times(f64),
    /// As fast as it can be read and taken.
    Max,
}

/// Fastest and slowest pace: a year in half a minute, a second in a fortnight.
const TIMES_RANGE: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse::<f64>() {
            Ok(times) if TIMES_RANGE.contains(&times) => Ok(Self::Times(times)),
            _ => Err("write \"max\" or a factor from 0.000001 to 1000000".to_owned()),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// The pace of one replay: maps recorded monotonic time to the time a frame is due.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    speed: Speed,
    origin: Option<Origin>,
}

#[derive(Debug, Clone, Copy)]
struct Origin {
    recorded_ns: u64,
    due_ns: u64,
}

impl Pace {
    /// A pace that starts with the first frame.
    pub fn new(speed: Speed) -> Self {
        Self { speed, origin: None }
    }

    /// The next frame is the first one again: of another run, whose clock started anew, or of the next round.
    pub fn restart(&mut self) {
        self.origin = None;
    }

    /// When the frame recorded at `recorded_ns` is due, for a caller at `now_ns`.
    pub fn due_ns(&mut self, recorded_ns: u64, now_ns: u64) -> u64 {
        let Speed::Times(times) = self.speed else { return now_ns };
        let origin = *self.origin.get_or_insert(Origin { recorded_ns, due_ns: now_ns });
        let after_ns = recorded_ns.saturating_sub(origin.recorded_ns);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "2^53 ns are 104 days, beyond which a replay may be off by a nanosecond; the cast saturates"
        )]
        let after_ns =
            if (times - 1.0).abs() < f64::EPSILON { after_ns } else { (after_ns as f64 / times) as u64 };
        origin.due_ns.saturating_add(after_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: distances are kept, stretched or ignored as the speed says. Method: three speeds.
    #[test]
    fn distances_follow_the_speed() {
        let due = |speed| {
            let mut pace = Pace::new(speed);
            [1000, 1500, 3000].map(|recorded| pace.due_ns(recorded, 70))
        };
        assert_eq!(due(Speed::Times(1.0)), [70, 570, 2070]);
        assert_eq!(due(Speed::Times(10.0)), [70, 120, 270]);
        assert_eq!(due(Speed::Max), [70, 70, 70]);
        let mut pace = Pace::new(Speed::Times(1.0));
        pace.due_ns(1000, 0);
        pace.restart();
        assert_eq!(pace.due_ns(5, 90), 90, "another run starts at once");
    }

    // Goal: a speed is a positive factor or max. Method: right and wrong words.
    #[test]
    fn speeds_are_read() {
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        assert_eq!("max".parse(), Ok(Speed::Max));
        for text in ["0", "-1", "nan", "inf", "fast", ""] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
