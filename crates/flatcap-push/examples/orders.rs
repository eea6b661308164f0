//! An application that pushes its spans. It handles orders, and each order becomes a frame with the
//! order's duration. `scripts/push_demo.sh` shows these durations together with the pressure on the
//! host.
//!
//! The arguments are the push socket and the number of orders to handle.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an application, not the recorder")]

use std::path::PathBuf;
use std::time::Duration;

use flatcap_push::{ClientOptions, PushClient, PushLayer};
use tracing_subscriber::layer::SubscriberExt;

/// Time that an order takes on an otherwise idle host.
const ORDER: Duration = Duration::from_micros(300);
/// Time from one order to the next.
const INTERVAL: Duration = Duration::from_millis(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let socket = arguments.next().map(PathBuf::from);
    let orders: u64 = arguments.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(u64::MAX);
    let client = PushClient::open("orders", ClientOptions { socket, ..ClientOptions::default() })?;
    let layer = PushLayer::new(&client, "orders")?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    for number in 0..orders {
        handle(number);
        std::thread::sleep(INTERVAL);
    }
    println!("{orders} orders; the recorder said last: {:?}", client.last_error());
    Ok(())
}

/// Handles an order by computing for some time. On a busy host this takes longer.
fn handle(number: u64) {
    let span = tracing::info_span!("order", number);
    span.in_scope(|| {
        let mut steps = 0_u64;
        let begin = std::time::Instant::now();
        while begin.elapsed() < ORDER {
            steps = std::hint::black_box(steps.wrapping_mul(31).wrapping_add(number));
        }
    });
}
