//! An application that pushes its spans: it handles orders, and each order is a frame with its
//! duration. `scripts/push_demo.sh` shows them beside the pressure on the host.
//!
//! Arguments: the push socket, and how many orders to handle.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an application, not the recorder")]

use std::path::PathBuf;
use std::time::Duration;

use flatcap_push::{ClientOptions, PushClient, PushLayer};
use tracing_subscriber::layer::SubscriberExt;

/// Time that an order takes on a host with nothing else to do.
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

/// Handles an order: computes for a while. On a busy host it takes longer.
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
