//! Events of `perf_event_open(2)`: their attributes, and an open event.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::{IntegerSetter, NoArg, Opcode, ioctl, opcode};

/// Types of events (`perf_event_attr.type`).
pub(super) const SOFTWARE: u32 = 1;
pub(super) const TRACEPOINT: u32 = 2;

/// Bits of `read_format`.
pub(super) const READ_TIME_ENABLED: u64 = 1;
pub(super) const READ_TIME_RUNNING: u64 = 1 << 1;
pub(super) const READ_GROUP: u64 = 1 << 3;

/// Bits of `sample_type`.
pub(super) const SAMPLE_THREAD: u64 = 1 << 1;
pub(super) const SAMPLE_TIME: u64 = 1 << 2;
pub(super) const SAMPLE_CALL_CHAIN: u64 = 1 << 5;
pub(super) const SAMPLE_RAW: u64 = 1 << 10;

/// Flags, in the order of the kernel's bit field.
pub(super) const DISABLED: u64 = flag(0);
pub(super) const EXCLUDE_IDLE: u64 = flag(7);
pub(super) const MAPPINGS: u64 = flag(8);
pub(super) const NAMES: u64 = flag(9);
pub(super) const TASKS: u64 = flag(13);
pub(super) const ORIGIN_OF_ALL: u64 = flag(18); // sample_id_all
pub(super) const MAPPINGS_WITH_FILES: u64 = flag(23); // mmap2
pub(super) const EXECS: u64 = flag(24);
pub(super) const OWN_CLOCK: u64 = flag(25);
pub(super) const SWITCHES: u64 = flag(26);
pub(super) const BUILD_IDS: u64 = flag(34);

/// The kernel's CLOCK_MONOTONIC.
const CLOCK_MONOTONIC: i32 = 1;
/// Length of the attributes up to `sample_max_stack` (`PERF_ATTR_SIZE_VER5`, Linux 4.8). Earlier
/// kernels accept attributes of this length if the fields that they do not know are zero.
const ATTRIBUTES_BYTES: u32 = 112;
const _: () = assert!(size_of::<EventAttributes>() == 112);

const ENABLE: Opcode = opcode::none(b'$', 0);
const DISABLE: Opcode = opcode::none(b'$', 1);
const SET_OUTPUT: Opcode = opcode::none(b'$', 5);
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Returns the flag at a position of the kernel's bit field. The first bit is the lowest or the
/// highest bit, depending on the byte order.
const fn flag(place: u32) -> u64 {
    if cfg!(target_endian = "big") { 1 << (63 - place) } else { 1 << place }
}

/// The attributes of an event, which are the first part of the kernel's `perf_event_attr`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct EventAttributes {
    pub(super) kind: u32,
    pub(super) size: u32, // set by `EventFile::open`
    pub(super) config: u64,
    pub(super) sample_period: u64, // or the frequency
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_events: u32,
    pub(super) breakpoint: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clock: i32,
    pub(super) sample_regs_intr: u64,
    pub(super) aux_watermark: u32,
    pub(super) sample_max_stack: u16,
    pub(super) reserved: u16,
}

impl EventAttributes {
    /// Stamps each record with CLOCK_MONOTONIC.
    pub(super) fn with_monotonic_clock(self) -> Self {
        Self { clock: CLOCK_MONOTONIC, flags: self.flags | OWN_CLOCK, ..self }
    }
}

/// The core or thread on which events are counted or recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountTarget {
    /// A core, whatever thread runs there.
    Core(u32),
    /// A thread, on whatever core it runs.
    Thread(u32),
}

/// An open event.
#[derive(Debug)]
pub struct EventFile(OwnedFd);

impl EventFile {
    /// Opens an event. Adds the event to the group of `leader` if a leader is given.
    ///
    /// # Errors
    /// Any error of `perf_event_open(2)`.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this system call")]
    pub(super) fn open(
        at: CountTarget,
        attributes: EventAttributes,
        leader: Option<&Self>,
    ) -> io::Result<Self> {
        let mut attributes = EventAttributes { size: ATTRIBUTES_BYTES, ..attributes };
        let id =
            |number: u32| i32::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let (thread, core) = match at {
            CountTarget::Core(core) => (-1, id(core)?),
            // The number 0 would mean the calling thread.
            CountTarget::Thread(thread) => (id(thread)?.max(1), -1),
        };
        // SAFETY: `attributes` is initialized, lives until the call returns, and has the length in
        // its `size`. The kernel only reads it, except that it writes `size` if it rejects the
        // structure as too long.
        let file = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw mut attributes,
                libc::c_long::from(thread),
                libc::c_long::from(core),
                libc::c_long::from(leader.map_or(-1, |leader| leader.0.as_raw_fd())),
                CLOSE_ON_EXEC,
            )
        };
        let file = RawFd::try_from(file).unwrap_or(-1);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor for us; no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Starts the event, and also the events of its group that were not opened in the stopped
    /// state.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this request")]
    pub fn start(&self) -> io::Result<()> {
        // SAFETY: the request PERF_EVENT_IOC_ENABLE takes no pointer, and the descriptor refers to
        // a perf event, which supports this request.
        Ok(unsafe { ioctl(&self.0, NoArg::<ENABLE>::new()) }?)
    }

    /// Stops the event.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this request")]
    pub fn stop(&self) -> io::Result<()> {
        // SAFETY: the request PERF_EVENT_IOC_DISABLE takes no pointer, and the descriptor refers to
        // a perf event, which supports this request.
        Ok(unsafe { ioctl(&self.0, NoArg::<DISABLE>::new()) }?)
    }

    /// Makes the event write its records into the ring of `other`. `other` must be an event of the
    /// same core with a mapped ring.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this request")]
    pub(super) fn write_into(&self, other: &Self) -> io::Result<()> {
        let other = usize::try_from(other.0.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the request PERF_EVENT_IOC_SET_OUTPUT takes a descriptor as a number, and no
        // pointer; `other` is an open descriptor.
        Ok(unsafe { ioctl(&self.0, IntegerSetter::<SET_OUTPUT>::new_usize(other)) }?)
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
