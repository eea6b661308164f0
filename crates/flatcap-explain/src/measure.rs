//! The quantity that a field measures, derived from the kind and unit of the field, and the
//! smallest departure from the baseline that matters.

use flatcap_format::schema::{ColumnType, MetricKind, Usage};
use flatcap_query::{ColumnInfo, CommonUnit};
use serde::Serialize;

/// The class of a value. Two fields of the same class are comparable, whatever their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueClass {
    /// Time spent per elapsed time, as a share of one core, thread or device.
    TimeShare,
    /// Time spent waiting per elapsed time, as a share.
    WaitShare,
    /// Bytes in use.
    Bytes,
    /// Bytes that the kernel caches, and can reclaim at any time.
    CachedBytes,
    /// Bytes per second.
    ByteRate,
    /// Bytes per second that the kernel handles but no device transfers, such as pages of memory or
    /// discarded blocks.
    HandledRate,
    /// A percentage that the source computed itself.
    Percent,
    /// A number of things that exist.
    Count,
    /// A number of events per second.
    CountRate,
    /// A number of failures per second.
    FailureRate,
    /// A length of time, in seconds.
    Duration,
    /// Share of the time spent in one state.
    StateShare,
    /// Processes that ended or began below an element, per second.
    Offspring,
    /// The number of consecutive samples that repeat a value.
    Repetitions,
}

/// The unit of printed values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ValueUnit {
    /// Percent of a core, or of the elapsed time.
    #[serde(rename = "percent")]
    Percent,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// Events per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// A number.
    #[serde(rename = "")]
    None,
}

/// The way in which the values of a field are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measure {
    pub(super) class: ValueClass,
    /// Factor from the field's unit to the unit of the class.
    pub(super) factor: f64,
    /// Whether the field is a counter, so that its change per second is measured.
    pub(super) is_counter: bool,
    /// Whether the values come from an application or an import. Such values are compared with
    /// earlier values of the same series, since no absolute scale is known for them.
    pub(super) is_relative: bool,
    /// The smallest departure that matters on a relative scale. The class defines the smallest
    /// departure on an absolute scale.
    pub(super) floor: f64,
    /// The largest possible value. For example, one thread cannot wait longer than the elapsed
    /// time.
    pub(super) limit: f64,
}

impl Measure {
    /// Returns the measure of a numeric field of the host. Returns `None` for states, identities,
    /// strings and reservations. Reservations are left out because a program reserves address space
    /// at its start and uses little of it.
    pub(super) fn of(column: &ColumnInfo) -> Option<Self> {
        let is_counter = match column.kind {
            MetricKind::Counter => true,
            MetricKind::Gauge => false,
            MetricKind::State | MetricKind::Text | MetricKind::Unknown => return None,
        };
        let is_number = !matches!(column.column_type, ColumnType::Text | ColumnType::Bool);
        (is_number && column.usage != Usage::Reservation).then(|| Self::new(column, is_counter)).flatten()
    }

    /// Returns the measure of a field of an application or an import. All fields with numbers are
    /// measured. The schema of an application or an import may omit the kind of its values.
    pub(super) fn of_foreign(column: &ColumnInfo) -> Option<Self> {
        if column.kind == MetricKind::Text || column.column_type == ColumnType::Text {
            return None;
        }
        Some(Self { is_relative: true, ..Self::new(column, column.kind == MetricKind::Counter)? })
    }

    fn new(column: &ColumnInfo, is_counter: bool) -> Option<Self> {
        if column.is_identity {
            return None;
        }
        let (base, factor) = base_unit(column.unit.as_deref());
        let class = match (base, is_counter) {
            (BaseUnit::Seconds, true) if column.usage == Usage::Wait => ValueClass::WaitShare,
            (BaseUnit::Seconds, true) => ValueClass::TimeShare,
            (BaseUnit::Seconds, false) => ValueClass::Duration,
            (BaseUnit::Bytes, true)
                if column.unit.as_deref() == Some("pages") || column.usage == Usage::Release =>
            {
                ValueClass::HandledRate
            }
            (BaseUnit::Bytes, true) => ValueClass::ByteRate,
            (BaseUnit::Bytes, false) if column.usage == Usage::Cache => ValueClass::CachedBytes,
            (BaseUnit::Bytes, false) => ValueClass::Bytes,
            (BaseUnit::Percent, _) => ValueClass::Percent,
            (BaseUnit::None, true) if column.usage == Usage::Failure => ValueClass::FailureRate,
            (BaseUnit::None, true) => ValueClass::CountRate,
            (BaseUnit::None, false) => ValueClass::Count,
        };
        Some(Self { class, factor, is_counter, ..Self::STATE })
    }

    /// The measure of the share of time in which a string has a certain value.
    pub(super) const STATE: Self = Self {
        class: ValueClass::StateShare,
        factor: 1.0,
        is_counter: false,
        is_relative: false,
        floor: 0.0,
        limit: f64::INFINITY,
    };
    /// The measure of the number of processes that ended or began below an element.
    pub(super) const OFFSPRING: Self = Self { class: ValueClass::Offspring, is_counter: true, ..Self::STATE };
    /// The number of consecutive samples that repeat a value.
    // A sensor may repeat a value by chance.
    pub(super) const UNCHANGED: Self =
        Self { class: ValueClass::Repetitions, is_relative: true, floor: 1.0, ..Self::STATE };
    /// The share of samples without a value.
    pub(super) const ABSENT: Self = Self { is_relative: true, floor: 0.1, ..Self::STATE };

    /// Returns the smallest departure that matters.
    pub(super) fn least_departure(self) -> f64 {
        if self.is_relative { self.floor } else { self.class.least_departure() }
    }

    /// Returns the share of a field's usual level that a departure must reach.
    pub(super) fn least_relative(self) -> f64 {
        if self.is_relative { RELATIVE_LEAST } else { self.class.least_relative() }
    }

    /// Returns the value, or the largest possible value if that is lower.
    pub(super) fn limited(self, value: f64) -> f64 {
        if value > self.limit { self.limit } else { value }
    }

    /// Returns the weight of a departure as evidence of an incident, from 0 to 1.
    pub(super) fn weight(self) -> f64 {
        if self.is_relative { 1.0 } else { self.class.weight() }
    }
}

/// The smallest departure of a value of unknown scale, as a share of its usual level.
// If only the last digit of a sensor changes for the first time, this is not a departure.
const RELATIVE_LEAST: f64 = 0.01;

enum BaseUnit {
    Seconds,
    Bytes,
    Percent,
    None,
}

/// Returns the base unit of a schema's unit, and the factor that converts to the base unit.
fn base_unit(unit: Option<&str>) -> (BaseUnit, f64) {
    let common = CommonUnit::of(unit, false);
    match &*common.name {
        "s" => (BaseUnit::Seconds, common.factor),
        "B" => (BaseUnit::Bytes, common.factor),
        // Humidity, which is in thousandths, is not a share of a resource.
        "%" if unit == Some("%") => (BaseUnit::Percent, common.factor),
        _ => (BaseUnit::None, 1.0),
    }
}

/// Returns the length of a unit of time in seconds, or `None` for another unit.
pub(super) fn unit_seconds(unit: Option<&str>) -> Option<f64> {
    match base_unit(unit) {
        (BaseUnit::Seconds, factor) => Some(factor),
        _ => None,
    }
}

impl ValueClass {
    /// Returns the smallest departure that matters to a host, in the unit of the class. Smaller
    /// departures are normal noise on any host, even if they are rare on this host.
    pub(super) fn least_departure(self) -> f64 {
        match self {
            // This is a tenth of a core, because the kernel's housekeeping uses less.
            Self::TimeShare | Self::WaitShare | Self::StateShare => 0.1,
            // An allocator may request and return a few MiB at any time.
            Self::Bytes | Self::CachedBytes => f64::from(32_u32 << 20),
            Self::ByteRate => f64::from(4_u32 << 20),
            // The kernel handles bytes a hundred times faster than a device moves them.
            Self::HandledRate => f64::from(256_u32 << 20),
            Self::Percent => 10.0,
            Self::Count | Self::Repetitions => 16.0,
            // A process causes a few thousand page faults when it starts.
            Self::CountRate => 1000.0,
            // A single failure matters. In a window of 300 ms, it is 3.3 per second.
            Self::FailureRate => 0.5,
            Self::Duration => 0.05,
            Self::Offspring => 20.0,
        }
    }

    /// Returns the share of a field's usual level that a departure must reach. For example, a level
    /// of 10 GiB that changes by 1 % is still usual.
    pub(super) fn least_relative(self) -> f64 {
        match self {
            Self::Bytes | Self::CachedBytes => 0.01,
            _ => 0.1,
        }
    }

    /// Returns whether only an increase can be a departure. For example, if the share of one state
    /// decreases, the share of another state has increased.
    pub(super) fn is_upward_only(self) -> bool {
        matches!(self, Self::StateShare | Self::Offspring | Self::Repetitions)
    }

    /// Returns the weight of the class as evidence of an incident, from 0 to 1. Time and bytes are
    /// consumed resources and weigh most. Counts and caches only accompany the use of resources,
    /// and averages react late.
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::TimeShare
            | Self::WaitShare
            | Self::StateShare
            | Self::Bytes
            | Self::ByteRate
            | Self::FailureRate
            | Self::Offspring => 1.0,
            Self::Percent => 0.7,
            Self::Count
            | Self::CountRate
            | Self::HandledRate
            | Self::Duration
            | Self::CachedBytes
            | Self::Repetitions => 0.4,
        }
    }

    /// Returns whether the kernel may add the counts of a process to its parent when the parent
    /// waits for it. The kernel does so for bytes and calls, which it accounts in one structure.
    pub(super) fn may_be_inherited(self) -> bool {
        matches!(self, Self::ByteRate | Self::CountRate)
    }

    /// Returns whether an element with a high value uses a resource. Waits and states are not a
    /// use.
    pub(super) fn is_use(self) -> bool {
        !matches!(self, Self::WaitShare | Self::StateShare)
    }

    /// Returns the unit in which values are printed, and the factor that converts to this unit.
    pub(super) fn unit(self) -> (ValueUnit, f64) {
        match self {
            Self::TimeShare | Self::WaitShare | Self::StateShare => (ValueUnit::Percent, 100.0),
            Self::Percent => (ValueUnit::Percent, 1.0),
            Self::Bytes | Self::CachedBytes => (ValueUnit::Bytes, 1.0),
            Self::ByteRate | Self::HandledRate => (ValueUnit::BytesPerSecond, 1.0),
            Self::CountRate | Self::FailureRate | Self::Offspring => (ValueUnit::PerSecond, 1.0),
            Self::Duration => (ValueUnit::Seconds, 1.0),
            Self::Count | Self::Repetitions => (ValueUnit::None, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(kind: MetricKind, unit: Option<&str>, column_type: ColumnType) -> Option<Measure> {
        of_usage(Usage::Use, kind, unit, column_type)
    }

    fn of_usage(
        usage: Usage,
        kind: MetricKind,
        unit: Option<&str>,
        column_type: ColumnType,
    ) -> Option<Measure> {
        Measure::of(&ColumnInfo {
            path: "value".into(),
            column_type,
            type_name: "ulong".into(),
            unit: unit.map(Into::into),
            kind,
            usage,
            is_identity: false,
            order: 0,
        })
    }

    // Proves that kind and unit of a field determine the class of its values.
    #[test]
    fn kind_and_unit_decide() {
        let class = |kind, unit| measure(kind, unit, ColumnType::Unsigned).map(|measure| measure.class);
        let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
        assert_eq!(class(counter, Some("jiffies")), Some(ValueClass::TimeShare));
        assert_eq!(class(gauge, Some("ns")), Some(ValueClass::Duration));
        assert_eq!(class(counter, Some("sectors")), Some(ValueClass::ByteRate));
        assert_eq!(class(counter, Some("pages")), Some(ValueClass::HandledRate));
        assert_eq!(class(gauge, Some("pages")), Some(ValueClass::Bytes));
        assert_eq!(class(gauge, Some("%")), Some(ValueClass::Percent));
        assert_eq!(class(counter, None), Some(ValueClass::CountRate));
        assert_eq!(class(gauge, Some("rpm")), Some(ValueClass::Count));
        assert_eq!(class(MetricKind::State, None), None);
        assert_eq!(measure(gauge, None, ColumnType::Text), None);
        let of_usage = |usage, kind, unit| of_usage(usage, kind, unit, ColumnType::Unsigned);
        let class = |usage, kind, unit| of_usage(usage, kind, unit).map(|measure| measure.class);
        assert_eq!(class(Usage::Wait, counter, Some("ns")), Some(ValueClass::WaitShare));
        assert_eq!(class(Usage::Wait, counter, None), Some(ValueClass::CountRate));
        assert_eq!(class(Usage::Failure, counter, None), Some(ValueClass::FailureRate));
        assert_eq!(class(Usage::Reservation, gauge, Some("bytes")), None);
        assert_eq!(class(Usage::Cache, gauge, Some("pages")), Some(ValueClass::CachedBytes));
        assert_eq!(class(Usage::Cache, counter, Some("pages")), Some(ValueClass::HandledRate));
        assert_eq!(class(Usage::Release, counter, Some("sectors")), Some(ValueClass::HandledRate));
        let jiffies = measure(counter, Some("jiffies"), ColumnType::Unsigned).unwrap();
        assert!((jiffies.factor - 0.01).abs() < 1e-12);
    }
}
