//! The C interface. `include/flatcap_push.h` documents each function.

#![allow(unsafe_code, reason = "the interface of C: pointers of the caller")]

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Mutex;
use std::time::Duration;

use flatcap_stream::short_bytes::copy;
use rustix::io::Errno;

use super::client::PushClient;
use super::error::{PushError, SetupError};
use super::setup::{ClientOptions, OnFullLane, SourceOptions};
use super::source::PushSource;
use super::thread_lane::{BegunSample, ThreadLane, put_lane, take_lane};

thread_local! {
    /// The sample that this thread is building.
    static BUILDING: Cell<Option<(Box<ThreadLane>, BegunSample)>> = const { Cell::new(None) };
}

/// `flatcap_t`, which is a client with its sources. The sources live as long as the client.
#[derive(Debug)]
struct CClient {
    client: PushClient,
    #[allow(clippy::vec_box, reason = "C has pointers to them")]
    sources: Mutex<Vec<Box<PushSource>>>,
}

/// `flatcap_options_t`.
#[derive(Debug)]
#[repr(C)]
struct COptions {
    size: usize,
    socket: *const c_char,
    name: *const c_char,
    ring_bytes: u64,
    block_limit_ns: u64,
    use_counter: c_int,
}

/// `flatcap_budget_t`.
#[derive(Debug)]
#[repr(C)]
struct CBudget {
    size: usize,
    cpu_ns_per_second: u64,
    user_frames_per_second: u64,
    user_bytes_per_second: u64,
}

/// Returns the text of a C string, or `None` for null and for bytes that are not UTF-8.
fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the header demands a string that ends with a zero byte and outlives the call.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// Returns the bytes at a pointer, or `None` for null with a length above 0.
fn bytes<'a>(pointer: *const c_void, length: usize) -> Option<&'a [u8]> {
    if length == 0 {
        return Some(&[]);
    }
    // SAFETY: the header demands that these bytes are readable during the call.
    unsafe { slice_from_raw_parts(pointer.cast::<u8>(), length).as_ref() }
}

/// Returns the object to which a pointer of this library points.
fn object<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the header demands a pointer that this library has returned and that is not closed.
    // Null gives `None`.
    unsafe { pointer.as_ref() }
}

fn number(error: PushError) -> c_int {
    -match error {
        PushError::NoRecorder => Errno::NOTCONN,
        PushError::Full => Errno::NOBUFS,
        PushError::TooLarge => Errno::MSGSIZE,
        PushError::Paused => Errno::AGAIN,
        PushError::Busy => Errno::BUSY,
        PushError::Setup(SetupError::TooManySources) => Errno::NOSPC,
        PushError::Setup(_) => Errno::INVAL,
    }
    .raw_os_error()
}

fn invalid() -> c_int {
    -Errno::INVAL.raw_os_error()
}

fn open(name: *const c_char, options: ClientOptions) -> *mut CClient {
    let Some(Ok(client)) = text(name).map(|name| PushClient::open(name, options)) else { return null_mut() };
    Box::into_raw(Box::new(CClient { client, sources: Mutex::default() }))
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_open(socket: *const c_char, name: *const c_char) -> *mut CClient {
    open(name, ClientOptions { socket: path(socket), ..ClientOptions::default() })
}

fn path(pointer: *const c_char) -> Option<std::path::PathBuf> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as in `text`.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()).into())
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_open_with(options: *const COptions) -> *mut CClient {
    let Some(options) = object(options).filter(|options| options.size >= size_of::<COptions>()) else {
        return null_mut();
    };
    let default = ClientOptions::default();
    let block_limit = match options.block_limit_ns {
        0 => default.block_limit,
        limit => Duration::from_nanos(limit),
    };
    let ring_bytes = options.ring_bytes;
    open(
        options.name,
        ClientOptions {
            socket: path(options.socket),
            ring_bytes,
            use_counter: options.use_counter != 0,
            block_limit,
            ..default
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_source(
    client: *const CClient,
    name: *const c_char,
    root: *const c_char,
    schema: *const c_void,
    schema_length: usize,
    on_full: c_int,
) -> *const PushSource {
    let (Some(owner), Some(name), Some(schema)) = (object(client), text(name), bytes(schema, schema_length))
    else {
        return null_mut();
    };
    let on_full = match on_full {
        0 => OnFullLane::DropNewest,
        1 => OnFullLane::DropOldest,
        2 => OnFullLane::Block,
        _ => return null_mut(),
    };
    let options = SourceOptions {
        name,
        root: text(root).unwrap_or_default(),
        schema,
        on_full,
        ..SourceOptions::default()
    };
    let (Ok(source), Ok(mut sources)) = (owner.client.source(options), owner.sources.lock()) else {
        return null_mut();
    };
    let source = Box::new(source);
    let pointer: *const PushSource = &raw const *source;
    sources.push(source);
    pointer
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_push(source: *const PushSource, payload: *const c_void, length: usize) -> c_int {
    let (Some(source), Some(payload)) = (object(source), bytes(payload, length)) else { return invalid() };
    source.push(payload).map_or_else(number, |()| 0)
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_push_many(
    source: *const PushSource,
    payloads: *const c_void,
    lengths: *const usize,
    count: usize,
) -> isize {
    let Some(source) = object(source) else { return invalid() as isize };
    let lengths = if count == 0 {
        Some(&[][..])
    } else {
        // SAFETY: the header demands that `count` lengths are readable during the call.
        unsafe { slice_from_raw_parts(lengths, count).as_ref() }
    };
    let Some(lengths) = lengths else { return invalid() as isize };
    let total = lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
    let Some(mut rest) = total.and_then(|total| bytes(payloads, total)) else { return invalid() as isize };
    let mut pushed = 0;
    for length in lengths {
        let (payload, after) = rest.split_at(*length);
        rest = after;
        pushed += isize::from(source.push(payload).is_ok());
    }
    pushed
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_begin(source: *const PushSource, length: usize) -> *mut c_void {
    let Some(source) = object(source) else { return null_mut() };
    let Some(mut lane) = take_lane(&source.client().shared) else {
        source.count_busy();
        return null_mut();
    };
    let Ok(sample) = lane.begin(source.slot(), length) else {
        put_lane(lane);
        return null_mut();
    };
    let place = sample.place.cast();
    // This fails only while the thread ends, and then the thread pushes no further samples.
    let _ends = BUILDING.try_with(|building| building.set(Some((lane, sample))));
    place
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_commit(source: *const PushSource, length: usize) -> c_int {
    let Some(source) = object(source) else { return invalid() };
    let Some((mut lane, sample)) = BUILDING.try_with(Cell::take).ok().flatten() else { return invalid() };
    let committed =
        if sample.slot() == source.slot().number { Some(lane.commit(&sample, length)) } else { None };
    put_lane(lane);
    committed.map_or_else(invalid, |committed| committed.map_or_else(number, |()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_cancel(_source: *const PushSource) {
    let building = BUILDING.try_with(Cell::take).ok().flatten();
    if let Some((lane, _)) = building {
        put_lane(lane);
    }
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_gauge(
    client: *const CClient,
    name: *const c_char,
    unit: *const c_char,
    value: f64,
) -> c_int {
    let (Some(owner), Some(name)) = (object(client), text(name)) else { return invalid() };
    let unit = if unit.is_null() { Some("") } else { text(unit) };
    let Some(unit) = unit else { return invalid() };
    owner.client.gauge(name, unit, value).map_or_else(number, |()| 0)
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_trigger(client: *const CClient, reason: *const c_char, flags: u32) -> c_int {
    let (Some(owner), Some(reason), 0) = (object(client), text(reason), flags) else { return invalid() };
    match owner.client.trigger(reason) {
        Ok(()) => 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotConnected => -Errno::NOTCONN.raw_os_error(),
        Err(_) => -Errno::OPNOTSUPP.raw_os_error(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_dropped(source: *const PushSource) -> u64 {
    object(source).map_or(0, PushSource::dropped)
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_is_connected(client: *const CClient) -> c_int {
    object(client).is_some_and(|owner| owner.client.is_connected()).into()
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_budget(client: *const CClient, budget: *mut CBudget) -> c_int {
    // SAFETY: the header demands null or a structure that is writable and whose size is set.
    let place = unsafe { budget.as_mut() }.filter(|place| place.size >= size_of::<CBudget>());
    let (Some(owner), Some(place)) = (object(client), place) else { return invalid() };
    let Some(budget) = owner.client.budget() else { return -Errno::NODATA.raw_os_error() };
    place.cpu_ns_per_second = budget.cpu_ns_per_second;
    place.user_frames_per_second = budget.user_frames_per_second.unwrap_or_default();
    place.user_bytes_per_second = budget.user_bytes_per_second.unwrap_or_default();
    0
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_error(client: *const CClient, buffer: *mut c_char, length: usize) -> usize {
    let error = object(client).map(|owner| owner.client.last_error()).unwrap_or_default();
    if length > 0 && !buffer.is_null() {
        // SAFETY: the header demands that this number of bytes is writable.
        let place = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        let bytes = error.len().min(length - 1);
        if let (Some(place), Some(text)) = (place.get_mut(..bytes), error.as_bytes().get(..bytes)) {
            copy(place, text);
        }
        place.get_mut(bytes).into_iter().for_each(|end| *end = 0);
    }
    error.len()
}

#[unsafe(no_mangle)]
extern "C" fn flatcap_close(client: *mut CClient) {
    if !client.is_null() {
        // SAFETY: the pointer was made by `open`, and the header forbids its use after this.
        drop(unsafe { Box::from_raw(client) });
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    // Proves that pointers of a C program are read only up to the stated length, and that null is
    // not read.
    #[test]
    fn pointers_are_read() {
        assert_eq!(
            (text(c"name".as_ptr()), text(c"\xFF".as_ptr()), text(null())),
            (Some("name"), None, None)
        );
        assert_eq!(path(c"/run/x".as_ptr()), Some("/run/x".into()));
        assert_eq!(path(null()), None);
        let content = [1_u8, 2, 3];
        assert_eq!(bytes(content.as_ptr().cast(), 2), Some(&content[..2]));
        assert_eq!((bytes(null(), 0), bytes(null(), 1)), (Some(&[][..]), None));
        assert_eq!((object::<u64>(null()), object(&raw const content)), (None, Some(&content)));
    }

    // Proves that each function refuses null, and that a text is truncated to the size of the
    // caller's buffer.
    #[test]
    fn null_is_refused() {
        assert!(flatcap_open(null(), null()).is_null());
        assert!(flatcap_open_with(null()).is_null());
        assert!(flatcap_source(null(), c"x".as_ptr(), null(), null(), 0, 0).is_null());
        assert_eq!(flatcap_push(null(), null(), 0), invalid());
        assert_eq!(flatcap_push_many(null(), null(), null(), 0), invalid() as isize);
        assert!(flatcap_begin(null(), 1).is_null());
        assert_eq!(flatcap_commit(null(), 1), invalid());
        assert_eq!(flatcap_gauge(null(), c"a".as_ptr(), null(), 1.0), invalid());
        assert_eq!(flatcap_trigger(null(), c"why".as_ptr(), 0), invalid());
        assert_eq!((flatcap_dropped(null()), flatcap_is_connected(null())), (0, 0));
        assert_eq!(flatcap_budget(null(), null_mut()), invalid());
        flatcap_cancel(null());
        flatcap_close(null_mut());
        let mut buffer = [1; 2];
        assert_eq!(flatcap_error(null(), buffer.as_mut_ptr(), buffer.len()), 0);
        assert_eq!(flatcap_error(null(), null_mut(), 2), 0);
        assert_eq!(buffer, [0, 1]);
    }
}
