//! The setup of a client and its sources. All other modules read the setup, and no module changes
//! it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatcap_lane::{LaneBudget, SourceRegistration};

use super::clock::ClockPoint;
use super::error::SetupError;

/// Maximum number of sources of a client.
pub(crate) const SOURCES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 255;
const LABELS_MAX: usize = 16;

/// The action of a push when the lane of its thread is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFullLane {
    /// Drops the sample.
    #[default]
    DropNewest,
    /// Drops the oldest slab of the lane, regardless of the sources of its samples.
    DropOldest,
    /// Waits for space, up to a limit.
    Block,
}

/// The data that a push needs about a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceSlot {
    /// The index of the source in the client. The same index is the source's slot in each lane.
    pub(crate) number: u8,
    pub(crate) on_full: OnFullLane,
}

/// The options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The push socket. If `None`, the value of the environment variable `FLATCAP_PUSH_SOCKET` is
    /// used. Without this variable, the client tries two sockets: the socket of the service
    /// (/run/flatcap/push.sock), and the socket of a recorder that this user has started
    /// (/dev/shm/flatcap-UID/push.sock).
    pub socket: Option<PathBuf>,
    /// Size of a thread's ring in bytes, or 0 for the recorder's default.
    pub ring_bytes: u64,
    /// Whether to stamp samples with the processor's timestamp counter, provided that the kernel
    /// uses the counter for its own clock.
    pub use_counter: bool,
    /// Maximum time that a push waits for space, with [`OnFullLane::Block`].
    pub block_limit: Duration,
    /// Maximum time that a thread waits for the recorder's reply when it sets up a source or a
    /// lane. The recorder replies within microseconds. A recorder that does not reply in time is
    /// stuck, and is treated as disconnected.
    pub reply_limit: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            socket: None,
            ring_bytes: 0,
            use_counter: false,
            block_limit: Duration::from_millis(10),
            reply_limit: Duration::from_millis(100),
        }
    }
}

/// The options of a source. By default a source is opaque, that is, its payloads may be any bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceOptions<'a> {
    /// The source's name.
    pub name: &'a str,
    /// Full name of the payload's root table, or an empty string if the source is opaque.
    pub root: &'a str,
    /// The binary schema of the payload (`flatc --binary --schema`), or empty if the source is
    /// opaque.
    pub schema: &'a [u8],
    /// Names and values that describe the source.
    pub labels: &'a [(&'a str, &'a str)],
    /// Nominal period, if the source has one.
    pub period: Duration,
    /// The action of a push when the lane is full.
    pub on_full: OnFullLane,
}

/// The budget and limits of a recorder for pushed frames (docs/PUSH.md, section 4). Frames that
/// exceed the limits wait in the lanes. If a lane is full, [`OnFullLane`] determines the action of
/// a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushBudget {
    /// CPU time for the frames of all users, in nanoseconds per second. 1,000,000,000 is one core.
    pub cpu_ns_per_second: u64,
    /// Maximum number of frames that this user may push per second, or `None` if it is unlimited.
    pub user_frames_per_second: Option<u64>,
    /// Maximum number of bytes that this user may push per second, or `None` if it is unlimited.
    pub user_bytes_per_second: Option<u64>,
}

impl PushBudget {
    /// Returns the budget that the recorder states in a lane.
    pub(crate) fn of(lane: LaneBudget) -> Option<Self> {
        let limit = |number: u64| (number > 0).then_some(number);
        Some(Self {
            cpu_ns_per_second: limit(lane.cpu_ns_per_second)?,
            user_frames_per_second: limit(lane.user_frames_per_second),
            user_bytes_per_second: limit(lane.user_bytes_per_second),
        })
    }
}

/// The setup of a client at the time when the client was opened.
#[derive(Debug)]
pub(crate) struct ClientSetup {
    pub(crate) name: String,
    /// The sockets to try, in this order.
    pub(crate) sockets: Vec<SocketPlace>,
    pub(crate) options: ClientOptions,
    pub(crate) sources: [OnceLock<ClientSource>; SOURCES_MAX],
    /// If samples are stamped with the timestamp counter, the time at which the client was opened.
    pub(crate) opened: Option<ClockPoint>,
}

/// A path at which a recorder may listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketPlace {
    pub(crate) path: PathBuf,
    /// The user who must own the socket's directory, if the owner matters. The owner matters in
    /// /dev/shm, because any user can create a directory with this name there.
    pub(crate) owner: Option<u32>,
}

/// A source, and the number of its pushes for which the thread had no lane available.
#[derive(Debug)]
pub(crate) struct ClientSource {
    pub(crate) registration: SourceRegistration,
    pub(crate) schema: Vec<u8>,
    pub(crate) busy: AtomicU64,
}

impl SocketPlace {
    /// Checks that the socket is in a directory that belongs to the required owner.
    pub(crate) fn check_owner(&self) -> io::Result<()> {
        let Some(owner) = self.owner else { return Ok(()) };
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        let metadata = folder.symlink_metadata()?;
        if metadata.is_dir() && metadata.uid() == owner {
            return Ok(());
        }
        Err(io::Error::other(format!("{} belongs to another user", folder.display())))
    }
}

impl ClientSource {
    pub(crate) fn new(options: &SourceOptions<'_>) -> Result<Self, SetupError> {
        check_name(options.name)?;
        check_text(options.root)?;
        for (name, value) in options.labels {
            check_name(name)?;
            check_text(value)?;
        }
        if options.labels.len() > LABELS_MAX {
            return Err(SetupError::Name);
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let registration = SourceRegistration {
            number: 0,
            period_ns: u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX),
            name: options.name.to_owned(),
            root: options.root.to_owned(),
            labels: options.labels.iter().map(owned).collect(),
        };
        Ok(Self { registration, schema: options.schema.to_owned(), busy: AtomicU64::new(0) })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.registration == other.registration && self.schema == other.schema
    }

    /// Counts a push for which the thread had no lane available.
    #[cold]
    pub(crate) fn count_busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks the name of a client, a source or a label.
pub(crate) fn check_name(name: &str) -> Result<(), SetupError> {
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    is_name.then_some(()).ok_or(SetupError::Name)
}

fn check_text(text: &str) -> Result<(), SetupError> {
    (text.len() <= TEXT_BYTES_MAX).then_some(()).ok_or(SetupError::Name)
}
