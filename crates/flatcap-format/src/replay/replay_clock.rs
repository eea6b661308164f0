//! Computes when a replayed frame is due. No function reads a clock, because the caller passes the
//! current time.

use std::fmt;
use std::str::FromStr;

/// The speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// A multiple of the recorded speed. The factor is above 0.
    Times(f64),
    /// The replay is as fast as the recording can be read and consumed.
    Max,
}

/// Minimum and maximum of the factor of a replay's speed. At the lowest factor, the replay of one
/// second takes 11.6 days. At the highest factor, the replay of 11.6 days takes one second.
const TIMES_RANGE: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse::<f64>() {
            Ok(times) if TIMES_RANGE.contains(&times) => Ok(Self::Times(times)),
            _ => Err("must be \"max\" or a factor from 0.000001 to 1000000".to_owned()),
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

/// The clock of one replay. It maps the recorded monotonic time of a frame to the time at which the
/// frame is due.
#[derive(Debug, Clone, Copy)]
pub struct ReplayClock {
    speed: Speed,
    origin: Option<ClockOrigin>,
}

#[derive(Debug, Clone, Copy)]
struct ClockOrigin {
    recorded_ns: u64,
    due_ns: u64,
}

impl ReplayClock {
    /// Creates a clock that starts with the first frame.
    pub fn new(speed: Speed) -> Self {
        Self { speed, origin: None }
    }

    /// Restarts the clock, so that the next frame is due immediately. Call this function before the
    /// next round of the replay. Also call it before another run, because the monotonic clocks of
    /// two runs are unrelated.
    pub fn restart(&mut self) {
        self.origin = None;
    }

    /// Returns the time at which the frame recorded at `recorded_ns` is due, if the current time is
    /// `now_ns`.
    pub fn due_ns(&mut self, recorded_ns: u64, now_ns: u64) -> u64 {
        let Speed::Times(times) = self.speed else { return now_ns };
        let origin = *self.origin.get_or_insert(ClockOrigin { recorded_ns, due_ns: now_ns });
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

    // Proves that the time between two frames is kept, scaled or ignored, depending on the speed.
    #[test]
    fn distances_follow_the_speed() {
        let due = |speed| {
            let mut pace = ReplayClock::new(speed);
            [1000, 1500, 3000].map(|recorded| pace.due_ns(recorded, 70))
        };
        assert_eq!(due(Speed::Times(1.0)), [70, 570, 2070]);
        assert_eq!(due(Speed::Times(10.0)), [70, 120, 270]);
        assert_eq!(due(Speed::Max), [70, 70, 70]);
        let mut pace = ReplayClock::new(Speed::Times(1.0));
        pace.due_ns(1000, 0);
        pace.restart();
        assert_eq!(pace.due_ns(5, 90), 90, "another run starts at once");
    }

    // Proves that only a positive factor or "max" is a speed.
    #[test]
    fn speeds_are_read() {
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        assert_eq!("max".parse(), Ok(Speed::Max));
        for text in ["0", "-1", "nan", "inf", "fast", ""] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
