//! `view --web`: serves a recording as a page until a signal ends it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use flatcap_format::storage::linux::Directory;
use flatcap_format::storage::open_regular;
use flatcap_os::host::random_u64;
use flatcap_os::signal::SignalWatch;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_view::ViewError;
use flatcap_view::web::{PageOptions, PageServer};
use tokio::sync::oneshot;

use super::ExitStatus;
use super::error::CliError;

/// The program that opens an address in the user's browser.
const OPENER: &str = "xdg-open";
/// Minimum length of a token, in bytes. A token of 64 bits has this many hexadecimal digits.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token, in bytes. A header has at most 16 KiB, and a token needs far less.
const TOKEN_BYTES_MAX: usize = 256;

/// How a page is served.
#[derive(Debug, clap::Args)]
pub(super) struct PageArgs {
    /// Serve a page for a browser on this host instead, and print its address. Control-C ends it.
    #[arg(long)]
    web: bool,
    /// Open the page in the browser of this user (xdg-open).
    #[arg(long, requires = "web")]
    open: bool,
    /// Address of the page. It must be an address of this host itself. Port 0 selects any free
    /// port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", requires = "web")]
    listen: SocketAddr,
    /// File with the token that the page asks for; created with a new one if it is missing. With a
    /// token file, the printed address does not contain the token [default: a new token each time].
    #[arg(long, value_name = "FILE", requires = "web")]
    token_file: Option<PathBuf>,
}

impl PageArgs {
    /// Returns whether the arguments request a page.
    pub(super) fn is_page(&self) -> bool {
        self.web
    }

    /// Returns the options of a page, with the values that the arguments set.
    fn apply(&self, options: PageOptions) -> Result<PageOptions, CliError> {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        Ok(PageOptions { listen: self.listen, token, ..options })
    }

    /// Serves the page until a signal ends it.
    pub(super) fn serve(
        &self,
        options: PageOptions,
        at_ns: Option<i64>,
        out: &mut dyn Write,
    ) -> Result<ExitStatus, CliError> {
        let mut server = PageServer::bind(self.apply(options)?)?;
        let failed = |error| CliError::View(ViewError::Page(error));
        let at = at_ns.map(|at_ns| format!("at={at_ns}"));
        let listening = server.address();
        let address = |secret: Option<String>| {
            let parts: Vec<String> = secret.into_iter().chain(at.clone()).collect();
            let separator = if parts.is_empty() { "" } else { "#" };
            format!("http://{listening}/{separator}{}", parts.join("&"))
        };
        writeln!(out, "{}", address(self.token_file.is_none().then(|| format!("token={}", server.token()))))?;
        out.flush()?;
        if self.open {
            let ticket = server.issue_ticket().map_err(failed)?;
            open(&address(Some(format!("ticket={ticket}"))))?;
        }
        let stop = Arc::new(WakeEvent::new());
        let _signals = SignalWatch::stop_only(Arc::clone(&stop)).map_err(failed)?;
        let (stopping, stopped) = oneshot::channel();
        let ended = Arc::clone(&stop);
        let thread = thread::spawn("page", move || {
            let result = server.run(stopped);
            ended.set();
            result
        });
        let thread = thread.map_err(failed)?;
        stop.wait();
        drop(stopping);
        match thread.join() {
            Ok(Ok(())) => Ok(ExitStatus::Done),
            Ok(Err(error)) => Err(failed(error)),
            // The panic hook has reported the panic when it happened.
            Err(_) => Ok(ExitStatus::Failed),
        }
    }
}

/// Reads the token from its file. Creates the file if it is missing.
fn read_token(path: &Path) -> Result<String, CliError> {
    let failed = |error: io::Error| CliError::TokenFile { path: path.to_owned(), reason: error.to_string() };
    create_token(path).map_err(failed)?;
    let text = read_token_text(path).map_err(failed)?;
    let token = text.trim();
    let is_valid = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_valid {
        return Ok(token.to_owned());
    }
    let reason = format!(
        "it must have one token of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} letters and digits; remove it for a new one"
    );
    Err(CliError::TokenFile { path: path.to_owned(), reason })
}

/// Creates the token file if it is missing.
fn create_token(path: &Path) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it names no file"))?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match Directory::open(folder.unwrap_or(Path::new(".")))?.create_file(name, 0o640) {
        Ok(mut file) => writeln!(file, "{:016x}{:016x}", random_u64()?, random_u64()?),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads the token file. Refuses the file if another user owns it or can write to it, because that
/// user could choose the token.
fn read_token_text(path: &Path) -> io::Result<String> {
    let file = open_regular(path)?;
    let status = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&status.uid()) {
        let why =
            format!("it belongs to user {}; remove it, or change its owner with chown {own}", status.uid());
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    if status.mode() & 0o022 != 0 {
        let why = format!("others can write to it (mode {:o}); run chmod go-w", status.mode() & 0o777);
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    // A longer file cannot contain a valid token.
    file.take(2 * TOKEN_BYTES_MAX as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens an address in the browser. The page is served even if this fails.
fn open(address: &str) -> io::Result<()> {
    let null = Stdio::null;
    let opened = Command::new(OPENER).arg(address).stdin(null()).stdout(null()).stderr(null()).spawn();
    if let Err(error) = opened {
        writeln!(io::stderr(), "flatcap: cannot start {OPENER}: {error}; open the address by hand")?;
    }
    Ok(())
}
