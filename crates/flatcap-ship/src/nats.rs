//! Sends messages to NATS servers, where `JetStream` stores them.

use std::error::Error as _;
use std::fmt;
use std::future::{Future, pending};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ContextBuilder, ErrorCode};
use async_nats::{ConnectOptions, Event, ServerAddr};
use flatcap_format::storage::open_regular;
use futures_util::future::{Either, select};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::bus::{BusError, BusMessage, MessageBus};
use crate::nats_settings::NatsSettings;
use crate::stop::StopSignal;
use crate::store::install_cryptography;

/// Maximum time for connecting. This time covers the resolution of host names, attempts on all
/// servers, and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time for connecting to one address.
// A name may have several addresses, some of which may be unreachable.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for sending a message, and maximum time for waiting for its acknowledgement.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a file with credentials, in bytes.
// No token is longer than this limit.
const CREDENTIALS_BYTES_MAX: u64 = 16 << 10;
/// Maximum number of characters of a server's error message that are reported.
const SERVER_ERROR_CHARS_MAX: usize = 300;

/// A bus that is a NATS server or a cluster of NATS servers.
pub(crate) struct NatsBus {
    servers: Vec<ServerAddr>,
    /// The URL of the servers, for error messages.
    url: String,
    credentials: Option<PathBuf>,
    stop: StopSignal,
    connection: Option<NatsConnection>,
}

/// An open connection. The connection ends when the value is dropped.
struct NatsConnection {
    runtime: Option<Runtime>, // none only while it is dropped
    context: jetstream::Context,
    /// Errors that the server sends asynchronously, such as a missing permission.
    server_error: watch::Receiver<Option<String>>,
}

impl Drop for NatsConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Do not wait for the runtime, because the lookup of a name may hang.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBus").field("url", &self.url).finish_non_exhaustive()
    }
}

impl NatsBus {
    /// Creates the bus for `settings`. Does not connect.
    ///
    /// # Errors
    /// Returns `Failed` if the credentials cannot be read or a URL is malformed.
    pub(crate) fn new(settings: &NatsSettings, stop: StopSignal) -> Result<Self, BusError> {
        let NatsSettings { url, credentials, .. } = settings.clone();
        // The credentials are read again at each connection, so that they can be replaced.
        credentials.as_deref().map(Credentials::read).transpose()?;
        let parse = |server: &str| server.parse::<ServerAddr>();
        let servers = url.split(',').map(parse).collect::<Result<_, _>>();
        let servers = servers.map_err(|error| BusError::Failed(format!("{url}: {error}")))?;
        Ok(Self { servers, url, credentials, stop, connection: None })
    }

    fn connect(&self) -> Result<NatsConnection, BusError> {
        let (noted, server_error) = watch::channel(None);
        let note = move |event: Event| {
            if let Event::ServerError(error) = event {
                noted.send_replace(Some(shortened(&error.to_string())));
            }
            std::future::ready(())
        };
        install_cryptography();
        let options = match self.credentials.as_deref().map(Credentials::read).transpose()? {
            Some(Credentials::Token(token)) => ConnectOptions::with_token(token),
            Some(Credentials::User { name, password }) => {
                ConnectOptions::with_user_and_password(name, password)
            }
            None => ConnectOptions::new(),
        };
        // Ignore discovered servers, so that the next connection begins with the configured servers
        // again.
        let options = options
            .name("flatcap-ship")
            .connection_timeout(ADDRESS_TIMEOUT)
            .ignore_discovered_servers()
            .event_callback(note);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| BusError::Failed(format!("cannot start its runtime: {error}")))?;
        let connect = async {
            let client = options.connect(self.servers.clone()).await?;
            Ok::<_, async_nats::ConnectError>(
                ContextBuilder::new().timeout(ACKNOWLEDGEMENT_TIMEOUT).build(client),
            )
        };
        let connected = self.bounded(&runtime, CONNECT_TIMEOUT, connect);
        let context = match connected {
            Ok(Ok(context)) => context,
            failed => {
                // Do not wait for the runtime, as when a connection is dropped.
                runtime.shutdown_background();
                let error = failed?.err().map(|error| shortened(&error.to_string())).unwrap_or_default();
                return Err(BusError::Failed(format!("{}: {error}", self.url)));
            }
        };
        Ok(NatsConnection { runtime: Some(runtime), context, server_error })
    }

    /// Waits for a future to complete, but at most for the given time and only until the stop
    /// signal is set.
    fn bounded<T>(
        &self,
        runtime: &Runtime,
        at_most: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, BusError> {
        let done = runtime.block_on(async {
            self.stop.interrupt(async { tokio::time::timeout(at_most, work).await }).await
        });
        let late = |_| BusError::Failed(format!("{}: no answer within {} s", self.url, at_most.as_secs()));
        done.ok_or(BusError::Stopped)?.map_err(late)
    }

    fn send_on(&self, connection: &NatsConnection, message: &BusMessage) -> Result<(), BusError> {
        let Some(runtime) = &connection.runtime else { return Err(BusError::Stopped) };
        let publish = PublishMessage::build().message_id(&message.id).payload(message.body.clone());
        let acknowledged = pin!(async {
            let acknowledgement = connection.context.send_publish(message.subject.clone(), publish).await?;
            acknowledgement.await
        });
        let mut server_error = connection.server_error.clone();
        // After an error there is no acknowledgement, so waiting for one would only take time.
        let failed = pin!(async {
            match server_error.wait_for(Option::is_some).await {
                Ok(error) => error.clone().unwrap_or_default(),
                Err(_) => pending().await,
            }
        });
        let subject = &message.subject;
        let answer = self.bounded(runtime, 2 * ACKNOWLEDGEMENT_TIMEOUT, select(acknowledged, failed))?;
        let error = match answer {
            // The result is the same if the stream already had the message.
            Either::Left((Ok(_), _)) => return Ok(()),
            Either::Left((Err(error), _)) => error,
            Either::Right((error, _)) => return Err(BusError::Failed(format!("{}: {error}", self.url))),
        };
        Err(match error.kind() {
            _ if is_of_message(&error) => BusError::Refused(shortened(&error.to_string())),
            PublishErrorKind::StreamNotFound => BusError::Failed(format!(
                "{}: no stream takes the subject {subject}; create one, such as with `nats stream add`",
                self.url
            )),
            PublishErrorKind::TimedOut => BusError::Failed(format!(
                "{}: no acknowledgement of {subject} within {} s",
                self.url,
                ACKNOWLEDGEMENT_TIMEOUT.as_secs()
            )),
            _ => BusError::Failed(format!("{}: {}", self.url, shortened(&error.to_string()))),
        })
    }
}

impl MessageBus for NatsBus {
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let sent = self.send_on(&connection, message);
        // After any other error, the next attempt uses a new connection.
        if matches!(sent, Ok(()) | Err(BusError::Refused(_))) {
            self.connection = Some(connection);
        }
        sent
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

/// Returns whether the server refuses this message because of its size. If so, it is useless to
/// send the message again.
fn is_of_message(error: &PublishError) -> bool {
    let code = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    error.kind() == PublishErrorKind::MaxPayloadExceeded
        || code.is_some_and(|error| error.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM)
}

/// Returns the beginning of an error message from a server.
fn shortened(text: &str) -> String {
    text.chars().take(SERVER_ERROR_CHARS_MAX).collect()
}

/// The credentials of a client.
// The type does not implement `Debug`, so that credentials are never printed.
enum Credentials {
    Token(String),
    User { name: String, password: String },
}

impl Credentials {
    /// Reads a file with credentials. The file has a token on one line, or a user and a password on
    /// two lines.
    ///
    /// # Errors
    /// Returns `Failed`, with the path but without any of the content.
    fn read(path: &Path) -> Result<Self, BusError> {
        let failed = |what: &str| BusError::Failed(format!("credentials {}: {what}", path.display()));
        let mut text = String::new();
        let file = open_regular(path).map_err(|error| failed(&error.to_string()))?;
        let length = file
            .take(CREDENTIALS_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| failed(&error.to_string()))?;
        if length as u64 > CREDENTIALS_BYTES_MAX {
            return Err(failed(&format!("more than {CREDENTIALS_BYTES_MAX} bytes")));
        }
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains("-----BEGIN") {
            return Err("a file with JWT and NKEY is not supported: give the user a password or a token");
        }
        let lines: Vec<&str> = text.lines().collect();
        match lines[..] {
            [token] if !token.trim().is_empty() => Ok(Self::Token(token.trim().to_owned())),
            [name, password] if !name.is_empty() && !password.is_empty() => {
                Ok(Self::User { name: name.to_owned(), password: password.to_owned() })
            }
            _ => Err("neither a token on one line nor a user and a password on two"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that both kinds of NATS credentials are read. The error for any other file has its
    // path but none of its content.
    #[test]
    fn credentials_are_read_and_not_told() {
        assert!(matches!(Credentials::parse("s3cret\n"), Ok(Credentials::Token(token)) if token == "s3cret"));
        let user = Credentials::parse("ship\r\nan other s3cret\n");
        let Ok(Credentials::User { name, password }) = user else { panic!("no user") };
        assert_eq!((name.as_str(), password.as_str()), ("ship", "an other s3cret"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nats.credentials");
        let settings = NatsSettings {
            url: "nats://127.0.0.1:1".to_owned(),
            subject: "a".to_owned(),
            credentials: Some(path.clone()),
            outbox: PathBuf::new(),
        };
        let error = || NatsBus::new(&settings, StopSignal::new().1).unwrap_err().to_string();
        assert!(error().contains("nats.credentials: No such file"), "{}", error());
        let long = "s3cret".repeat(10_000);
        let creds = "-----BEGIN NATS USER JWT-----\ns3cret\n------END NATS USER JWT------\n";
        for text in ["", "\n", "s3cret\n\n", "s3cret\na\nb\n", creds, &long] {
            std::fs::write(&path, text).unwrap();
            let error = error();
            assert!(error.contains("nats.credentials: ") && !error.contains("s3cret"), "{error}");
        }
        std::fs::write(&path, b"s3cret\xff").unwrap();
        assert!(!error().contains("s3cret"), "{}", error());
    }
}
