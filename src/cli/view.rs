//! `view`: shows a recording on the terminal or as a page, live or in a replay.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use flatcap_control::{Client, ClientError};
use flatcap_explain::ExplainError;
use flatcap_format::replay::{HostIdentity, RecordedHosts, recording_span};
use flatcap_format::segment::ListedSegment;
use flatcap_os::clock::read_clocks;
use flatcap_view::ViewError;
use flatcap_view::terminal::{Appearance, Session, show};
use flatcap_view::web::PageOptions;

use super::ExitStatus;
use super::error::CliError;
use super::hosts::find_host;
use super::page::PageArgs;
use super::recordings::{default_recordings, segments_of};
use super::selection::wall_time;
use super::terminal::Output;
use super::zone_option::ZoneOption;

/// Show a recording on the terminal, or as a page with --web.
///
/// Shows charts of the host, processes, control groups, disks, interfaces and all fields, for any
/// time of the recording. Without PATH, shows the recording of the running recorder, live. Press ?
/// for the keys.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: those of the running recorder, else
    /// ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The time to show first, as printed by spikes and dump [default: now, or the end].
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    at: Option<String>,
    /// The host, if the segments are from several hosts: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    zone: ZoneOption,
    /// Draw with ASCII only, as in a locale without UTF-8.
    #[arg(long)]
    ascii: bool,
    /// Control socket of the running recorder [default: /run/flatcap/control.sock, else that of
    /// this user's recording].
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

/// The recording that is shown.
struct ShownRecording {
    paths: Vec<PathBuf>,
    client: Option<Client>,
    is_live: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.zone.zone()?;
    let recording = recording(args)?;
    let listings = segments_of(&recording.paths)?;
    let (host, host_name) = host(args, &listings)?;
    let at = args.at.as_ref();
    let at_ns =
        at.map(|text| wall_time(&recording.paths, ("--at", text), host.as_ref(), &zone)).transpose()?;
    if args.page.is_page() {
        let ShownRecording { paths, client, .. } = recording;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = PageOptions { paths, host, host_name, client, listen, token: None };
        return args.page.serve(options, at_ns, out);
    }
    let is_growing = recording.is_live || listings.iter().any(|listing| listing.live);
    let now_ns = read_clocks().wall_ns;
    let span_ns = match recording_span(&recording.paths, host.as_ref())? {
        Some(span) => (*span.start(), *span.end()),
        None if is_growing => (now_ns, now_ns),
        None => return Err(ViewError::NoSamples.into()),
    };
    let session = Session {
        paths: recording.paths,
        host,
        host_name,
        span_ns,
        at_ns,
        is_growing,
        is_live: recording.is_live,
        client: recording.client,
        zone,
        appearance: Appearance {
            is_ascii: args.ascii || !has_unicode(),
            is_plain: !Output::Stdout.has_colors(),
        },
    };
    show(&session)?;
    Ok(ExitStatus::Done)
}

/// Finds the recording to show. This is the recording that the user names, else the recording of
/// the running recorder, else the default recording.
fn recording(args: &Args) -> Result<ShownRecording, CliError> {
    if !args.paths.is_empty() {
        let client = args.socket.as_deref().map(|socket| Client::find(Some(socket))).transpose()?;
        return Ok(ShownRecording { paths: args.paths.clone(), client, is_live: false });
    }
    let found = Client::find(args.socket.as_deref()).and_then(|client| Ok((client.status()?, client)));
    match found {
        Ok((status, client)) => {
            let paths = vec![PathBuf::from(status.recorder.data_dir)];
            Ok(ShownRecording { paths, client: Some(client), is_live: true })
        }
        Err(error @ ClientError::Several(_)) => Err(error.into()),
        Err(error) if args.socket.is_some() => Err(error.into()),
        // The data may be readable even if the socket is not.
        Err(_) => Ok(ShownRecording { paths: default_recordings(), client: None, is_live: false }),
    }
}

/// Returns the identity of the host that is shown, and its name.
fn host(args: &Args, listings: &[ListedSegment]) -> Result<(Option<HostIdentity>, String), CliError> {
    let hosts = RecordedHosts::of(listings);
    let host = args.host.as_deref().map(|name| find_host(&hosts, name)).transpose()?;
    if host.is_none() && hosts.are_several() {
        let names = hosts.into_shown(None).iter().map(|host| host.name.clone()).collect();
        return Err(ExplainError::SeveralHosts(names).into());
    }
    let name = hosts.into_shown(host.as_ref()).first().map(|host| host.name.clone());
    Ok((host, name.unwrap_or_default()))
}

/// Returns whether the locale has characters beyond ASCII.
fn has_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
