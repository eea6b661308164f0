//! Shows a recording on a terminal, live or in a replay.
//!
//! Keys change a [`ViewState`]. A [`Screenful`] holds the content of the feeds at the displayed
//! time. [`draw`] draws a frame from the [`ViewState`] and the [`Screenful`]. [`ViewState`],
//! [`Screenful`] and [`draw`] do no input or output. [`show`] is the loop that reads keys and
//! recordings and writes to the terminal.

mod alternate_screen;
mod appearance;
mod chart_frame;
mod feeds;
mod frame;
mod help_text;
mod numbers;
mod screenful;
mod session;
mod state;
mod table_frame;
#[cfg(test)]
mod tests;
mod times;

pub use appearance::Appearance;
pub use feeds::Feeds;
pub use frame::draw;
pub use screenful::{ChartRow, Screenful, TableRow};
pub use session::{Session, show};
pub use state::{Request, Screen, ViewState};
