//! The client. It finds the running recorder and sends requests to it.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_os::local_socket::{account_name, connect_to, file_access, is_socket};
use flatcap_text::quantity::format_duration;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::route::SnapshotBody;
use super::socket_path::candidates;
use super::status::Status;

/// Maximum time that the client waits for a status. Only a stopped or stuck recorder needs longer.
const STATUS_WAIT: Duration = Duration::from_secs(5);
/// Maximum time that the client waits for the answer to a command. It is a little longer than the
/// recorder's own time limit for an answer.
const COMMAND_WAIT: Duration = Duration::from_secs(35);
/// The group's permission bits in a file mode.
const GROUP_PERMISSIONS: u32 = 0o070;
/// Maximum length of an answer, in bytes. It suffices for the status of thousands of sources.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Errors of a request to the recorder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No recorder is running.
    #[error(
        "no running flatcap found at {looked_at}; start one (flatcap record, or the service), or name its socket with --socket"
    )]
    NotRunning {
        /// The searched paths.
        looked_at: String,
    },
    /// Several recorders are running.
    #[error("several recordings are running; name one with --socket:{}", list(.0))]
    Several(Vec<FoundRecorder>),
    /// The connection to the socket failed.
    #[error("{}: {error}{}", path.display(), hint(path, error))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The recorder did not answer in time.
    #[error("{}: no answer within {seconds} s; the recorder may be stopped, or the host too busy", path.display())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// The time that the client waited.
        seconds: u64,
    },
    /// The answer is not HTTP or is truncated.
    #[error("{}: invalid answer: {reason}; is it flatcap's control socket?", path.display())]
    InvalidAnswer {
        /// The socket.
        path: PathBuf,
        /// The reason why the answer is invalid.
        reason: String,
    },
    /// The recorder refused the request.
    #[error("the recorder refused: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The text of the answer.
        message: String,
    },
    /// The kernel refused a resource that the request needs.
    #[error("cannot send the request: {0}")]
    Kernel(#[from] io::Error),
}

/// A recorder that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecorder {
    /// The recorder's socket.
    pub socket: PathBuf,
    /// The recorder's process id.
    pub pid: u32,
    /// The recorder's data directory.
    pub data_dir: String,
}

/// A client of one running recorder.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Returns a client for this socket. Without a socket, returns a client for the only recorder
    /// that answers at the default paths.
    ///
    /// # Errors
    /// Returns [`NotRunning`](ClientError::NotRunning), [`Several`](ClientError::Several), or the
    /// error of the only socket that was found.
    pub fn find(socket: Option<&Path>) -> Result<Self, ClientError> {
        if let Some(socket) = socket {
            return Ok(Self { socket: socket.to_owned() });
        }
        let (paths, looked_at) = candidates();
        let mut found = Vec::new();
        let mut failed = None;
        for path in paths {
            let client = Self { socket: path };
            match client.status() {
                Ok(status) => found.push((client, status.recorder)),
                // There is no socket, or no process listens on it any more.
                Err(ClientError::Connect { error, .. })
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if found.len() > 1 {
            let one = |(client, recorder): (Self, super::status::ProcessStatus)| FoundRecorder {
                socket: client.socket,
                pid: recorder.pid,
                data_dir: recorder.data_dir,
            };
            return Err(ClientError::Several(found.into_iter().map(one).collect()));
        }
        match (found.pop(), failed) {
            (Some((client, _)), _) => Ok(client),
            (None, Some(error)) => Err(error),
            (None, None) => Err(ClientError::NotRunning { looked_at }),
        }
    }

    /// Returns the status.
    ///
    /// # Errors
    /// Returns any [`ClientError`] except `NotRunning` and `Several`.
    pub fn status(&self) -> Result<Status, ClientError> {
        Status::from_json(&self.status_json()?).map_err(|error| self.invalid_answer(error))
    }

    /// Returns the status as the recorder's JSON text.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn status_json(&self) -> Result<String, ClientError> {
        self.ask(Method::GET, "/status", String::new(), STATUS_WAIT)
    }

    /// Seals the open segment and begins the next one. Returns the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn rotate(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/rotate", String::new(), COMMAND_WAIT)
    }

    /// Writes a mark into the recording. Returns the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn mark(&self, text: &str) -> Result<String, ClientError> {
        self.ask(Method::POST, "/mark", text.to_owned(), COMMAND_WAIT)
    }

    /// Requests a snapshot that covers the time from `last` before now to `after` from now. Returns
    /// the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn snapshot(&self, last: Duration, after: Duration, reason: &str) -> Result<String, ClientError> {
        let body = SnapshotBody {
            last: format_duration(last),
            after: (!after.is_zero()).then(|| format_duration(after)),
            reason: reason.to_owned(),
        };
        // This cannot fail, because the struct contains only strings.
        let body = serde_json::to_string(&body).unwrap_or_default();
        self.ask(Method::POST, "/snapshot", body, COMMAND_WAIT)
    }

    /// Reloads the configuration. Returns the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn reload(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/reload", String::new(), COMMAND_WAIT)
    }

    /// Writes and syncs all samples taken so far. Returns the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn flush(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/flush", String::new(), COMMAND_WAIT)
    }

    /// Sets the log filter. Returns the recorder's message.
    ///
    /// # Errors
    /// Returns the same errors as [`status`](Self::status).
    pub fn set_log(&self, filter: &str) -> Result<String, ClientError> {
        self.ask(Method::PUT, "/log-level", filter.to_owned(), COMMAND_WAIT)
    }

    fn ask(&self, method: Method, path: &str, body: String, wait: Duration) -> Result<String, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "flatcap")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.invalid_answer(error))?;
        let connection = connect_to(&self.socket)
            .map_err(|error| ClientError::Connect { path: self.socket.clone(), error })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (status, text) = runtime.block_on(async {
            let answer = timeout(wait, self.exchange(UnixStream::from_std(connection)?, request));
            let late = |_| ClientError::TimedOut { path: self.socket.clone(), seconds: wait.as_secs() };
            answer.await.map_err(late)?
        })?;
        let text = text.trim_end().to_owned();
        if status.is_success() {
            return Ok(text);
        }
        Err(ClientError::Refused { status: status.as_u16(), message: text })
    }

    async fn exchange(
        &self,
        connection: UnixStream,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, String), ClientError> {
        let (mut sender, connection_task) =
            http1::handshake(TokioIo::new(connection)).await.map_err(|error| self.invalid_answer(error))?;
        let response = async {
            let response = sender.send_request(request).await.map_err(|error| self.invalid_answer(error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| self.invalid_answer(error))?.to_bytes();
            let text = String::from_utf8(bytes.into()).map_err(|error| self.invalid_answer(error))?;
            Ok((status, text))
        };
        drive(response, connection_task).await
    }

    fn invalid_answer(&self, reason: impl std::fmt::Display) -> ClientError {
        ClientError::InvalidAnswer { path: self.socket.clone(), reason: reason.to_string() }
    }
}

/// Returns the output of `asked`. Polls `background` while it waits for `asked`.
async fn drive<A: Future, B: Future>(asked: A, background: B) -> A::Output {
    let (mut asked, mut course) = (std::pin::pin!(asked), std::pin::pin!(background));
    let mut is_over = false;
    std::future::poll_fn(|context| {
        is_over = is_over || course.as_mut().poll(context).is_ready();
        asked.as_mut().poll(context)
    })
    .await
}

fn list(found: &[FoundRecorder]) -> String {
    let line = |one: &FoundRecorder| {
        format!("\n  --socket {}  (pid {}, recording to {})", one.socket.display(), one.pid, one.data_dir)
    };
    found.iter().map(line).collect()
}

/// Returns advice for an error whose text does not say what to do. Returns an empty string for any
/// other error.
fn hint(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => match (file_access(path), path.parent().map(file_access)) {
            (Ok(socket), _) => format!("; it {}", access_hint(socket)),
            (Err(_), Some(Ok(directory))) => format!("; its directory {}", access_hint(directory)),
            (Err(_), _) => "; you have no access to its directory: run as its owner, or root".to_owned(),
        },
        ErrorKind::ConnectionRefused if !is_socket(path).unwrap_or(true) => "; it is not a socket".to_owned(),
        ErrorKind::ConnectionRefused => "; no process answers: the recorder that created it is dead".to_owned(),
        ErrorKind::WouldBlock => "; too many connections are waiting: the recorder is stopped, or a client opens them faster than it \
                                  can serve them (see ss -xp); try again"
            .to_owned(),
        ErrorKind::NotFound => "; no recorder is running with this socket: start one, or name another socket with --socket".to_owned(),
        _ => String::new(),
    }
}

/// Returns text that says which accounts may use a file with this user, group and mode.
fn access_hint((user, group, mode): (u32, u32, u32)) -> String {
    let user = account_name("/etc/passwd", user);
    if mode & GROUP_PERMISSIONS == 0 {
        return format!("is restricted to user {user} (mode {mode:o}): run as that user, or root");
    }
    let group = account_name("/etc/group", group);
    format!("is restricted to user {user} and group {group} (mode {mode:o}): run as one of them, or root")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the hint names the user and group to run as, with and without group permissions.
    #[test]
    fn the_hint_names_user_and_group() {
        assert_eq!(
            access_hint((0, 0, 0o700)),
            "is restricted to user root (mode 700): run as that user, or root"
        );
        let both = "is restricted to user root and group root (mode 750): run as one of them, or root";
        assert_eq!(access_hint((0, 0, 0o750)), both);
    }
}
