//! The connections of an HTTP listener. Limits the number and the CPU time of connections, and
//! decides which connection is displaced.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::throttle::Throttle;
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

/// Maximum number of connections per listener. A further connection displaces the oldest connection
/// that has sent no request. If there is no such connection, the further connection waits for a
/// slot.
const CONNECTIONS_MAX: usize = 64;
/// Minimum age at which a connection can be displaced. A request over a long distance needs this
/// time to arrive.
const DISPLACE_DELAY: Duration = Duration::from_millis(100);

/// The state shared by the connections of one listener.
#[derive(Debug)]
pub struct ListenerState {
    slots: Arc<Semaphore>,
    silent: RefCell<VecDeque<Rc<SilentConnection>>>, // the oldest first
    throttle: Arc<Throttle>,                         // of CPU time
}

/// A connection that has sent no request yet.
#[derive(Debug)]
pub struct SilentConnection {
    since_ns: u64,
    displaced: Notify,
}

impl SilentConnection {
    /// Waits until this connection must be closed to free its slot for another one.
    pub async fn wait_for_displacement(&self) {
        self.displaced.notified().await;
    }
}

impl ListenerState {
    /// Creates the state. `throttle` limits CPU time. Requests wait while it is exhausted.
    pub fn new(throttle: Arc<Throttle>) -> Self {
        Self { slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)), silent: RefCell::default(), throttle }
    }

    /// Waits until the budget permits another request. Calls `paused` before each wait.
    pub async fn wait_for_budget(&self, paused: impl Fn()) {
        loop {
            let wait_ns = self.throttle.wait_ns(monotonic_ns());
            if wait_ns == 0 {
                return;
            }
            paused();
            sleep(Duration::from_nanos(wait_ns)).await;
        }
    }

    /// Waits for a slot. If all slots are taken, displaces the oldest connection that has sent no
    /// request, and calls `displaced`.
    ///
    /// # Errors
    /// Fails if the semaphore of the slots is closed. This error does not happen, because nothing
    /// closes the semaphore.
    pub async fn acquire_slot(&self, displaced: impl Fn()) -> Result<OwnedSemaphorePermit, AcquireError> {
        loop {
            let oldest = self.silent.borrow().front().cloned();
            let free = Arc::clone(&self.slots).acquire_owned();
            let Some(oldest) = oldest else { return free.await };
            let silent_for = Duration::from_nanos(monotonic_ns().saturating_sub(oldest.since_ns));
            if let Ok(place) = timeout(DISPLACE_DELAY.saturating_sub(silent_for), free).await {
                return place;
            }
            // The connection is displaced unless it has sent its request in the meantime.
            if self.remove_silent(&oldest) {
                displaced();
                oldest.displaced.notify_one();
                return Arc::clone(&self.slots).acquire_owned().await;
            }
        }
    }

    /// Registers a new connection as silent.
    pub fn add_silent(&self) -> Rc<SilentConnection> {
        let silent = Rc::new(SilentConnection { since_ns: monotonic_ns(), displaced: Notify::new() });
        self.silent.borrow_mut().push_back(Rc::clone(&silent));
        silent
    }

    /// Marks a connection as no longer silent. Returns whether the connection was silent before
    /// this call.
    pub fn remove_silent(&self, connection: &Rc<SilentConnection>) -> bool {
        let mut silent = self.silent.borrow_mut();
        let before = silent.len();
        silent.retain(|other| !Rc::ptr_eq(other, connection));
        silent.len() < before
    }

    /// Waits until all connections are closed.
    pub(crate) async fn wait_for_end(&self) {
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        let _never_closed = self.slots.acquire_many(all).await.map(SemaphorePermit::forget);
    }

    /// Returns the output of a future, charging the CPU time of each poll to the throttle.
    pub async fn charge<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let (began_ns, before_ns) = (monotonic_ns(), thread_cpu_ns());
            let polled = future.as_mut().poll(context);
            self.throttle.charge(began_ns, thread_cpu_ns().saturating_sub(before_ns));
            polled
        })
        .await
    }
}

/// The output of the future that finished first.
#[derive(Debug)]
pub enum FirstDone<A, B> {
    /// The output of the left future.
    Left(A),
    /// The output of the right future.
    Right(B),
}

/// Returns the output of the future that finishes first, and drops the other one.
pub async fn first<A: Future, B: Future>(left: A, right: B) -> FirstDone<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(FirstDone::Left(output));
        }
        right.as_mut().poll(context).map(FirstDone::Right)
    })
    .await
}
