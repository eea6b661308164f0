//! The control server's thread, which starts and ends with a run. If the server cannot be started,
//! the run continues without it.

use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap_control::{
    Caller, ListenerBudget, RunLabels, Server, ServerStop, SocketPath, is_socket_of_a_run, listen_for_metrics,
};
use flatcap_metrics::Metrics;
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::local_socket::{LocalSocket, PATH_BYTES_MAX, remove_stale};
use flatcap_os::shared_memory::create_private_directory;
use flatcap_os::thread;

use crate::config::{Config, ControlConfig, SOCKET_PATH_BYTES_MAX};

/// Maximum time that the server may take to end. The server drops its connections, so it takes
/// longer only if the host gives it no CPU time.
const STOP_MAX_NS: u64 = 1_000_000_000;

/// Checks that every socket path that the configuration accepts can be bound.
const _: () = assert!(SOCKET_PATH_BYTES_MAX == PATH_BYTES_MAX);

/// The running server, if there is one.
#[derive(Debug, Default)]
pub(super) struct ControlThread {
    thread: Option<(ServerStop, JoinHandle<()>)>,
    budget: Option<ListenerBudget>,
}

impl ControlThread {
    /// Starts the server as configured. If a part of the server cannot be started, a warning is
    /// logged.
    pub(super) fn start(config: &Config, run_id: u64, caller: Caller, metrics: &Arc<Metrics>) -> Self {
        let cpu_budget = config.recorder.cpu_budget;
        let config = &config.control;
        let socket = config.enabled.then(|| control_socket(config, run_id)).flatten();
        let listener = config.metrics_listen.and_then(|address| {
            let listener = listen_for_metrics(address).inspect_err(|error| {
                tracing::warn!(
                    %address,
                    %error,
                    "no metrics over TCP: cannot listen on the address; recording continues; change [control] metrics_listen"
                );
            });
            let listener = listener.ok()?;
            tracing::info!(%address, "metrics are served over TCP");
            Some(listener)
        });
        if socket.is_none() && listener.is_none() {
            return Self::default();
        }
        let labels = RunLabels { run_id: format!("{run_id:016x}"), start_wall_ns: read_clocks().wall_ns };
        let (server, stop) = Server::new(socket, listener, caller, Arc::clone(metrics), labels);
        let server = server.with_cpu_budget(cpu_budget);
        let budget = Some(server.budget());
        let thread = thread::spawn("control", move || {
            if let Err(error) = server.run() {
                tracing::warn!(%error, "the control socket has failed; recording continues without it");
            }
        });
        match thread {
            Ok(thread) => Self { thread: Some((stop, thread)), budget },
            Err(error) => {
                tracing::warn!(%error, "the control socket has failed; recording continues without it");
                Self::default()
            }
        }
    }

    /// Returns a handle that changes the CPU budget of the listeners. Returns `None` if there is no
    /// server.
    pub(super) fn listener_budget(&self) -> Option<ListenerBudget> {
        self.budget.clone()
    }

    /// Ends the server and removes its socket.
    pub(super) fn finish(self) {
        let Some((stop, thread)) = self.thread else { return };
        drop(stop);
        if !thread::wait_for_exit(&thread, monotonic_ns() + STOP_MAX_NS, &mut |_| {}) {
            tracing::warn!("the control server does not end; it is abandoned");
            return;
        }
        // If the thread panicked, the panic hook has reported it.
        let _panicked = thread.join();
    }
}

fn control_socket(config: &ControlConfig, run_id: u64) -> Option<LocalSocket> {
    let place = SocketPath::of(&config.socket, run_id);
    if let Some(directory) = &place.own_directory {
        if let Err(error) = create_private_directory(directory) {
            tracing::warn!(
                directory = %directory.display(),
                %error,
                "no control socket: cannot use the directory; recording continues, but flatcap status will not work; set [control] socket"
            );
            return None;
        }
        remove_stale(directory, is_socket_of_a_run);
    }
    let socket = LocalSocket::listen(&place.path).inspect_err(|error| {
        tracing::warn!(
            socket = %place.path.display(),
            %error,
            "no control socket: recording continues, but flatcap status will not work; set [control] socket"
        );
    });
    let socket = socket.ok()?;
    tracing::debug!(socket = %socket.path().display(), "listening for requests");
    Some(socket)
}
