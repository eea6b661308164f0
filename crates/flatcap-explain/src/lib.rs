//! Finds anomalies. Anomalies are the times at which a recording differs from its baseline. The
//! crate also finds the differences and their causes.
//!
//! [`find_spikes`] searches for such times, and [`explain`] analyzes one of them. Both turn the
//! batches of a query into series, compare windows with the baseline, and rank by the size of the
//! departure. The formulas are in the README of this crate. Fields are ranked by the unit and kind
//! of their values and by the shape of their list, not by name. Suspects are recognized by `pid`,
//! `path`, the unit `sectors` and the list `interfaces`.
//!
//! [`Explanation::add_causes`] reads the kernel's events of a window: the threads that ran or
//! waited, the code that ran, and the logged lines.
//!
//! Every program prints, sends or returns [`Spikes`] and [`Explanation`]. Their serialization is
//! the JSON of all programs, and a [`TextLayout`] turns them into lines of text.
//!
//! This crate never prints, never opens a file itself, and never holds more than a bounded number
//! of series.

mod answers;
mod attribution;
mod baseline;
mod causes;
mod causes_layout;
mod clock;
mod departure;
mod departures;
mod element_row;
mod element_rows;
mod element_slot;
mod ended_departures;
mod ended_processes;
mod events;
mod fresh_values;
mod group_names;
mod identities;
mod kernel_causes;
mod layout;
mod measure;
mod measured_samples;
mod measurement;
mod observation;
mod process_exits;
mod reading;
mod recorder_work;
mod report;
mod score;
mod series;
mod series_place;
mod source_period;
mod table_shape;
mod text;
mod window;
mod window_samples;

pub use answers::{
    ChildrenUse, ClockStep, ExplainedBaseline, ExplainedWindow, Explanation, FieldDeparture, FieldGroup,
    FieldName, MarkerText, Offspring, ProcessEnding, Spikes, Suspect, SuspectIdentity, UnrankedFields,
    UnrankedReason,
};
pub use attribution::{SuspectKind, SuspectRole};
pub use kernel_causes::{
    BlockingProcess, FunctionTime, KernelCauses, LoggedLine, LoggedLines, RunningProcess, SleepingThread,
    StackCauses, TaskCauses, UnrecordedCause, UnrecordedTime, WaitingProcess,
};
pub use layout::{Summary, TextLayout};
pub use measure::ValueUnit;
pub use measurement::{Measurement, ShownValues};
pub use reading::{ExplainError, RecordingChoice};
pub use report::{explain, find_spikes};
pub use text::sender_text;
