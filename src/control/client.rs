//! The other end: finds the running agent and asks it.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::place::candidates;
use super::status::Status;
use crate::os::local_socket::{access, account_name, connect_to, is_socket};

/// An agent says how it is within this; one that is stopped or stuck does not.
const STATUS_WAIT: Duration = Duration::from_secs(5);
/// An agent does what it is told within this, a little longer than it gives itself.
const ORDER_WAIT: Duration = Duration::from_secs(35);
/// The rights of a group in a mode.
const GROUP: u32 = 0o070;
/// Bytes of an answer: a state of thousands of sources.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why the agent could not be asked, or did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is none.
    #[error(
        "no running flatcap: nobody answers at {looked_at}; start one (flatcap record, or the service), or name its socket with --socket"
    )]
    NoAgent {
        /// Where it was looked for.
        looked_at: String,
    },
    /// There are several.
    #[error("several recordings are running; name one with --socket:{}", list(.0))]
    Several(Vec<Found>),
    /// The socket cannot be connected to.
    #[error("{}: {error}{}", path.display(), hint(path, error))]
    Connect {
        /// Which one.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// It does not answer in time.
    #[error("{}: no answer within {seconds} s; the agent may be stopped, or the host too busy", path.display())]
    TimedOut {
        /// Which one.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// What answers there speaks no HTTP, or ended in the middle.
    #[error("{}: no answer that makes sense: {reason}; is it flatcap's control socket?", path.display())]
    Nonsense {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The agent refuses.
    #[error("the agent refuses: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// The kernel refuses what it takes to ask.
    #[error("cannot ask the agent: {0}")]
    Kernel(#[from] io::Error),
}

/// An agent that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its socket.
    pub socket: PathBuf,
    /// Its process.
    pub pid: u32,
    /// Where it records to.
    pub data_dir: String,
}

/// A running agent.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// The agent at this socket; without one, the only one that answers where agents are by default.
    ///
    /// # Errors
    /// `NoAgent`, `Several`; `Connect` where the only one there may be cannot be connected to.
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
                Ok(status) => found.push((client, status.agent)),
                // Left by a dead one, or none.
                Err(ClientError::Connect { error, .. })
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if found.len() > 1 {
            let one = |(client, agent): (Self, super::status::AgentStatus)| Found {
                socket: client.socket,
                pid: agent.pid,
                data_dir: agent.data_dir,
            };
            return Err(ClientError::Several(found.into_iter().map(one).collect()));
        }
        match (found.pop(), failed) {
            (Some((client, _)), _) => Ok(client),
            (None, Some(error)) => Err(error),
            (None, None) => Err(ClientError::NoAgent { looked_at }),
        }
    }

    /// How it is.
    ///
    /// # Errors
    /// Every kind of [`ClientError`] but the first two.
    pub fn status(&self) -> Result<Status, ClientError> {
        Status::from_json(&self.status_json()?).map_err(|error| self.nonsense(error))
    }

    /// The same as the agent said it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn status_json(&self) -> Result<String, ClientError> {
        self.ask(Method::GET, "/status", String::new(), STATUS_WAIT)
    }

    /// Seals the open segment and begins the next one. What it says of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn rotate(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/rotate", String::new(), ORDER_WAIT)
    }

    /// Writes a line into the recording. What it says of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn mark(&self, text: &str) -> Result<String, ClientError> {
        self.ask(Method::POST, "/mark", text.to_owned(), ORDER_WAIT)
    }

    /// Lets it read its configuration again. What it says of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn reload(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/reload", String::new(), ORDER_WAIT)
    }

    /// Lets it write and sync what has been sampled. What it says of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn flush(&self) -> Result<String, ClientError> {
        self.ask(Method::POST, "/flush", String::new(), ORDER_WAIT)
    }

    /// Lets it log by this filter. What it says of it.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn set_log(&self, filter: &str) -> Result<String, ClientError> {
        self.ask(Method::PUT, "/log-level", filter.to_owned(), ORDER_WAIT)
    }

    fn ask(&self, method: Method, path: &str, body: String, wait: Duration) -> Result<String, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "flatcap")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.nonsense(error))?;
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
        let (mut sender, course) =
            http1::handshake(TokioIo::new(connection)).await.map_err(|error| self.nonsense(error))?;
        let asked = async {
            let response = sender.send_request(request).await.map_err(|error| self.nonsense(error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| self.nonsense(error))?.to_bytes();
            let text = String::from_utf8(bytes.into()).map_err(|error| self.nonsense(error))?;
            Ok((status, text))
        };
        beside(asked, course).await
    }

    fn nonsense(&self, reason: impl std::fmt::Display) -> ClientError {
        ClientError::Nonsense { path: self.socket.clone(), reason: reason.to_string() }
    }
}

/// What `asked` comes to, while `course` is moved on.
async fn beside<A: Future, B: Future>(asked: A, course: B) -> A::Output {
    let (mut asked, mut course) = (std::pin::pin!(asked), std::pin::pin!(course));
    let mut is_over = false;
    std::future::poll_fn(|context| {
        is_over = is_over || course.as_mut().poll(context).is_ready();
        asked.as_mut().poll(context)
    })
    .await
}

fn list(found: &[Found]) -> String {
    let line = |one: &Found| {
        format!("\n  --socket {}  (pid {}, recording to {})", one.socket.display(), one.pid, one.data_dir)
    };
    found.iter().map(line).collect()
}

/// What to do about an error, for whoever is not told enough by it.
fn hint(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => match (access(path), path.parent().map(access)) {
            (Ok(socket), _) => format!("; it {}", who_may(socket)),
            (Err(_), Some(Ok(directory))) => format!("; its directory {}", who_may(directory)),
            (Err(_), _) => "; its directory is closed to you: be its owner, or root".to_owned(),
        },
        ErrorKind::ConnectionRefused if !is_socket(path).unwrap_or(true) => "; it is no socket".to_owned(),
        ErrorKind::ConnectionRefused => "; nobody answers: the agent that made it is dead".to_owned(),
        ErrorKind::WouldBlock => "; too many connections wait there already: the agent is stopped, or somebody opens them faster than it \
                                  can serve them (ss -xp tells who); ask again"
            .to_owned(),
        ErrorKind::NotFound => "; is an agent running?".to_owned(),
        _ => String::new(),
    }
}

/// Whom a file with this user, group and mode lets in.
fn who_may((user, group, mode): (u32, u32, u32)) -> String {
    let user = account_name("/etc/passwd", user);
    if mode & GROUP == 0 {
        return format!("is for user {user} (mode {mode:o}): be that one, or root");
    }
    let group = account_name("/etc/group", group);
    format!("is for user {user} and group {group} (mode {mode:o}): be one of them, or root")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: who is kept out is told whom to be, of a directory as of a socket. Method: modes with and without rights of the group.
    #[test]
    fn who_may_is_told() {
        assert_eq!(who_may((0, 0, 0o700)), "is for user root (mode 700): be that one, or root");
        let both = "is for user root and group root (mode 750): be one of them, or root";
        assert_eq!(who_may((0, 0, 0o750)), both);
    }
}
