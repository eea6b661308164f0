//! Shows a recording as a page in a browser. Only this host can reach the page.
//!
//! One thread accepts connections, checks access and serves the files of the page. Two threads
//! answer requests for data. One of them answers only the requests that may take seconds. Another
//! thread answers Prometheus data sources, and one more reads new samples for all viewers together.
//! None of these threads is a part of the recorder.
//!
//! This module never blocks a recorder, and never answers a request for data without the token.

mod access;
mod api_answers;
mod api_error;
mod api_request;
mod assets;
mod live;
mod live_tail;
#[cfg_attr(not(feature = "promql"), path = "no_promql.rs")]
mod promql;
#[cfg(test)]
mod pushed_tests;
mod range_answer;
mod recording_reader;
#[cfg(test)]
mod served_page;
mod server;
#[cfg(test)]
mod shared_names_tests;
mod shown_paths;
mod tasks_answer;
mod tasks_reader;
#[cfg(test)]
mod tasks_tests;
#[cfg(test)]
mod tests;
mod work_budget;
mod worker;

pub use server::{PageOptions, PageServer};
