//! Rules of the flight recorder flatcap: conditions on the fields of recorded samples, evaluated
//! sample by sample at the sources' own rates.

mod event;
mod machine;
mod truth;
mod unit;

pub use event::{ComparedQuantity, TriggerChange, TriggerEvent};
pub use machine::{EPISODE_NS_MAX, FIRINGS_PER_DAY_MAX, Suppression, TriggerTimes};
pub use truth::Truth;
pub use unit::Quantity;
