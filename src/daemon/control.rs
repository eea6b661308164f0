//! The control server's thread: started beside a run, ended with it. Where it cannot be had, the run goes on without.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::config::{Config, Control, SOCKET_PATH_BYTES_MAX};
use crate::control::{
    Caller, RunLabels, Server, ServerStop, SocketPlace, is_socket_of_a_run, listen_for_metrics,
};
use crate::metrics::Metrics;
use crate::os::clock::{ClockReading, monotonic_ns};
use crate::os::local_socket::{LocalSocket, PATH_BYTES_MAX, remove_stale};
use crate::os::shared_memory::own_directory;
use crate::os::thread;

/// The server gives up connections at its end and needs no longer than this, unless the host gives it no processor.
const STOP_MAX_NS: u64 = 1_000_000_000;

/// What the configuration lets through can be made.
const _: () = assert!(SOCKET_PATH_BYTES_MAX == PATH_BYTES_MAX);

/// The server at work, or none.
#[derive(Debug, Default)]
pub(super) struct ControlThread(Option<(ServerStop, JoinHandle<()>)>);

impl ControlThread {
    /// Starts the server as configured. What cannot be had costs a warning.
    pub(super) fn start(config: &Config, run_id: u64, caller: Caller, metrics: &Arc<Metrics>) -> Self {
        let cpu_budget = config.agent.cpu_budget;
        let config = &config.control;
        let socket = config.enabled.then(|| control_socket(config, run_id)).flatten();
        let listener = config.metrics_listen.and_then(|address| {
            let listener = listen_for_metrics(address).inspect_err(|error| {
                tracing::warn!(
                    %address,
                    %error,
                    "no metrics over TCP: the address cannot be had; recording goes on; change [control] metrics_listen"
                );
            });
            let listener = listener.ok()?;
            tracing::info!(%address, "metrics are told over TCP");
            Some(listener)
        });
        if socket.is_none() && listener.is_none() {
            return Self(None);
        }
        let labels =
            RunLabels { run_id: format!("{run_id:016x}"), start_wall_ns: ClockReading::now().wall_ns };
        let (server, stop) = Server::new(socket, listener, caller, Arc::clone(metrics), labels);
        let server = server.within(cpu_budget);
        let thread = thread::spawn("control", move || {
            if let Err(error) = server.run() {
                tracing::warn!(%error, "the control socket has failed; recording goes on without it");
            }
        });
        match thread {
            Ok(thread) => Self(Some((stop, thread))),
            Err(error) => {
                tracing::warn!(%error, "the control socket has failed; recording goes on without it");
                Self(None)
            }
        }
    }

    /// Ends it. The socket's file is gone then.
    pub(super) fn finish(self) {
        let Some((stop, thread)) = self.0 else { return };
        drop(stop);
        if !thread::ends_by(&thread, monotonic_ns() + STOP_MAX_NS, &mut |_| {}) {
            tracing::warn!("the control server does not end; it is left behind");
            return;
        }
        // A panic in there was reported by the panic hook.
        let _panicked = thread.join();
    }
}

fn control_socket(config: &Control, run_id: u64) -> Option<LocalSocket> {
    let place = SocketPlace::of(&config.socket, run_id);
    if let Some(directory) = &place.own_directory {
        if let Err(error) = own_directory(directory) {
            tracing::warn!(
                directory = %directory.display(),
                %error,
                "no control socket: the directory cannot be had; recording goes on, flatcap status will not find it; set [control] socket"
            );
            return None;
        }
        remove_stale(directory, is_socket_of_a_run);
    }
    let socket = LocalSocket::listen(&place.path).inspect_err(|error| {
        tracing::warn!(
            socket = %place.path.display(),
            %error,
            "no control socket: recording goes on, flatcap status will not find it; set [control] socket"
        );
    });
    let socket = socket.ok()?;
    tracing::debug!(socket = %socket.path().display(), "requests are taken there");
    Some(socket)
}
