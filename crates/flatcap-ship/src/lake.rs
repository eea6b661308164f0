//! The store. This module puts, reads, lists and removes objects. The lake retries failed requests
//! with exponential backoff and jitter until the stop signal is set. A budget limits the number of
//! bytes that the lake puts per second.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flatcap_format::storage::ReadAt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
};
use tokio::runtime::{Builder, Runtime};

use crate::bounded_answers::{OBJECT_BYTES_MAX, is_final};
use crate::budget::RateBudget;
use crate::environment::{monotonic_ns, random_part};
use crate::lake_error::LakeError;
use crate::stop::StopSignal;
use crate::store::{REQUEST_TIMEOUT, StoreAccess, open_store};

/// Time before the first retry. The time doubles with each further retry.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Number of attempts per request, for `once` and the other subcommands that end by themselves.
pub(crate) const ATTEMPTS: u32 = 8;
/// Maximum number of concurrent requests when many objects are read.
const CONCURRENT_READS: usize = 16;
/// Number of bytes per request when a file is uploaded in parts.
const PART_BYTES: usize = 8 << 20;
/// Maximum number of objects in a listing. Each listed object needs about 200 bytes of memory.
const LISTED_MAX: usize = 1 << 20;

/// The result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object is new.
    New,
    /// The name exists already, and the object is unchanged.
    Existed,
}

/// A listed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedObject {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Time of the put by the clock of the store, in seconds since 1970.
    pub(crate) put_s: i64,
}

/// Settings for retries of failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Maximum number of attempts per request, including the first one.
    pub(crate) attempts: u32,
    /// Time before the first retry.
    pub(crate) first_pause: Duration,
    /// Maximum time to wait for a response.
    pub(crate) timeout: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { attempts: ATTEMPTS, first_pause: FIRST_PAUSE, timeout: REQUEST_TIMEOUT }
    }
}

impl Patience {
    /// Returns the time to wait after a failed attempt. The first attempt is number 0. The time is
    /// random. It is at most a maximum that doubles with each attempt, and at least half of this
    /// maximum.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        // A larger shift would overflow. The pause reaches its maximum with a much smaller shift.
        let whole = self.first_pause.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
        // The time is random, so that hosts whose requests failed at the same time do not retry at
        // the same time.
        whole / 2 + random_part(whole / 2)
    }
}

/// An open store.
pub(crate) struct Lake {
    store: Arc<dyn ObjectStore>,
    url: String,
    runtime: Runtime,
    stop: StopSignal,
    patience: Patience,
    bandwidth: Option<RefCell<RateBudget>>,
}

impl fmt::Debug for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lake").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Lake {
    /// Opens the store of a URL, with a budget of bytes that may be put per second.
    ///
    /// # Errors
    /// Fails with `Url`, `Directory`, `Request` or `Runtime`.
    pub(crate) fn open(
        url: &str,
        access: StoreAccess,
        stop: StopSignal,
        bandwidth: Option<u64>,
    ) -> Result<Self, LakeError> {
        let store = open_store(url, access)?;
        let lake = Self::over(store, url, stop, Patience::default())?;
        Ok(Self { bandwidth: bandwidth.map(|bytes| RefCell::new(RateBudget::new(bytes))), ..lake })
    }

    /// Creates a lake that uses this store, without a budget.
    ///
    /// # Errors
    /// `Runtime`.
    pub(crate) fn over(
        store: Arc<dyn ObjectStore>,
        url: &str,
        stop: StopSignal,
        patience: Patience,
    ) -> Result<Self, LakeError> {
        // The caller waits for each request, so worker threads would only cost memory.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { store, url: url.to_owned(), runtime, stop, patience, bandwidth: None })
    }

    /// Returns this lake with retries turned off. The caller must retry failed requests.
    pub(crate) fn without_repetitions(self) -> Self {
        Self { patience: Patience { attempts: 1, ..self.patience }, ..self }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for `duration`, or until the stop signal is set.
    ///
    /// # Errors
    /// `Stopped`.
    pub(crate) fn pause(&self, duration: Duration) -> Result<(), LakeError> {
        if duration.is_zero() {
            return if self.stop.is_set() { Err(LakeError::Stopped) } else { Ok(()) };
        }
        let slept = self.runtime.block_on(async { self.stop.interrupt(tokio::time::sleep(duration)).await });
        slept.ok_or(LakeError::Stopped)
    }

    /// Waits for an event, or until the stop signal is set, but not longer than the given duration.
    ///
    /// # Errors
    /// `Stopped`.
    pub(crate) fn wait_for(
        &self,
        event: impl Future<Output = ()>,
        at_most: Option<Duration>,
    ) -> Result<(), LakeError> {
        let waited = self.runtime.block_on(async {
            let wait = async {
                match at_most {
                    Some(at_most) => tokio::time::timeout(at_most, event).await.unwrap_or_default(),
                    None => event.await,
                }
            };
            self.stop.interrupt(wait).await
        });
        waited.ok_or(LakeError::Stopped)
    }

    /// Puts an object if its name is free.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn create(&self, name: &str, bytes: &Bytes) -> Result<Created, LakeError> {
        match self.put(name, bytes, &PutMode::Create) {
            Ok(()) => Ok(Created::New),
            Err(LakeError::Request { error: Error::AlreadyExists { .. }, .. }) => Ok(Created::Existed),
            Err(error) => Err(error),
        }
    }

    /// Puts an object, whether or not its name is free.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn replace(&self, name: &str, bytes: &Bytes) -> Result<(), LakeError> {
        self.put(name, bytes, &PutMode::Overwrite)
    }

    /// Puts the content of a file part by part, whether or not the name is free.
    ///
    /// # Errors
    /// Fails with `File` if the file cannot be read. Fails with `Request`, `Timeout` or `Stopped`
    /// in other cases.
    pub(crate) fn upload(&self, name: &str, file: &File) -> Result<(), LakeError> {
        let path = object_path(name)?;
        self.attempts(|| self.upload_once(name, &path, file))
    }

    fn upload_once(&self, name: &str, path: &Path, file: &File) -> Result<(), LakeError> {
        let mut upload = self.once(name, self.store.put_multipart(path))?;
        let mut offset = 0;
        let uploaded = loop {
            let mut part = vec![0; PART_BYTES];
            let bytes = match file.read_all_at(&mut part, offset) {
                Ok(bytes) => bytes,
                Err(error) => break Err(LakeError::File { name: name.to_owned(), error }),
            };
            part.truncate(bytes);
            offset += bytes as u64;
            // A store accepts no upload without parts, so an empty file is uploaded as one empty
            // part.
            if part.is_empty() && offset > 0 {
                break self.once(name, upload.complete()).map(drop);
            }
            // Charge the budget part by part, so that a long file cannot exceed the bandwidth.
            if let Err(error) = self.spend(bytes).and_then(|()| self.once(name, upload.put_part(part.into())))
            {
                break Err(error);
            }
            if bytes < PART_BYTES {
                break self.once(name, upload.complete()).map(drop);
            }
        };
        if uploaded.is_err() {
            // An error of this request is ignored, because stores remove parts without an object
            // after some days.
            let _kept = self.once(name, upload.abort());
        }
        uploaded
    }

    /// Waits until the budget of bytes allows a put, and charges the budget for it.
    fn spend(&self, bytes: usize) -> Result<(), LakeError> {
        if let Some(bandwidth) = &self.bandwidth {
            let wait = bandwidth.borrow().wait(monotonic_ns());
            self.pause(wait)?;
            bandwidth.borrow_mut().charge(monotonic_ns(), bytes as u64);
        }
        Ok(())
    }

    fn put(&self, name: &str, bytes: &Bytes, mode: &PutMode) -> Result<(), LakeError> {
        self.spend(bytes.len())?;
        self.retried(name, |store, path| {
            let (payload, options) = (bytes.clone().into(), PutOptions::from(mode.clone()));
            async move { store.put_opts(&path, payload, options).await.map(drop) }
        })
    }

    /// Returns the content of an object that has at most `bytes_max` bytes, or `None` if there is
    /// no such object.
    ///
    /// # Errors
    /// Fails with `Request`, also if the object is longer than `bytes_max`. `Timeout` and
    /// `Stopped`.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Bytes>, LakeError> {
        let read = self.retried(name, |store, path| read_object(store, path, bytes_max));
        found(read)
    }

    /// Reads many objects of at most `bytes_max` bytes. Passes each existing object to `take`, in
    /// any order.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`, or with an error of `take`.
    pub(crate) fn read_all<E: From<LakeError>>(
        &self,
        names: &[String],
        bytes_max: u64,
        take: impl FnMut(&str, &Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        let names: Vec<(String, u64)> = names.iter().map(|name| (name.clone(), 0)).collect();
        let at_once = |store, path, _| read_object(store, path, bytes_max);
        self.read_many(&names, at_once, |name, _| self.read(name, bytes_max), take)
    }

    /// Reads many objects, each from an offset on. The offset must be less than the length of the
    /// object. Passes the bytes of each existing object to `take`, in any order.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`, or with an error of `take`.
    pub(crate) fn read_ends<E: From<LakeError>>(
        &self,
        names: &[(String, u64)],
        take: impl FnMut(&str, &Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        self.read_many(names, read_from, |name, offset| self.read_end(name, offset), take)
    }

    /// Reads many objects. First reads several objects concurrently with `at_once`. Then uses
    /// `again` to read the failed objects one by one.
    fn read_many<E: From<LakeError>, F>(
        &self,
        names: &[(String, u64)],
        at_once: impl Fn(Arc<dyn ObjectStore>, Path, u64) -> F,
        again: impl Fn(&str, u64) -> Result<Option<Bytes>, LakeError>,
        mut take: impl FnMut(&str, &Bytes) -> Result<(), E>,
    ) -> Result<(), E>
    where
        F: Future<Output = object_store::Result<Bytes>>,
    {
        // Read in chunks, so that only the contents of one chunk are in memory.
        for names in names.chunks(CONCURRENT_READS) {
            let requests = names.iter().map(|(name, offset)| {
                let (store, path) = (Arc::clone(&self.store), Path::from(name.as_str()));
                let read = tokio::time::timeout(self.patience.timeout, at_once(store, path, *offset));
                async move { (name, *offset, read.await) }
            });
            let all = async {
                let read = stream::iter(requests).buffer_unordered(CONCURRENT_READS).collect::<Vec<_>>();
                self.stop.interrupt(read).await
            };
            for (name, offset, read) in self.runtime.block_on(all).ok_or(LakeError::Stopped)? {
                let bytes = match read {
                    Ok(Ok(bytes)) => Some(bytes),
                    // Read the object once more, with retries.
                    _ => again(name, offset)?,
                };
                if let Some(bytes) = bytes {
                    take(name, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the length of an object in bytes, or `None` if there is no such object.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, LakeError> {
        let head = self.retried(name, |store, path| async move { store.head(&path).await });
        Ok(found(head)?.map(|meta: ObjectMeta| meta.size))
    }

    /// Returns the bytes of an object from an offset on, or `None` if there is no such object. The
    /// offset must be less than the length of the object.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn read_end(&self, name: &str, offset: u64) -> Result<Option<Bytes>, LakeError> {
        found(self.retried(name, |store, path| read_from(store, path, offset)))
    }

    /// Returns all objects below a folder, by name.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout`, `TooMany` or `Stopped`.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<ListedObject>, LakeError> {
        // Request one object more than the limit, which shows whether the limit is exceeded.
        let mut listed = self.retried(folder, |store, path| async move {
            store
                .list(Some(&path))
                .take(LISTED_MAX + 1)
                .map_ok(ListedObject::from)
                .try_collect::<Vec<_>>()
                .await
        })?;
        if listed.len() > LISTED_MAX {
            return Err(LakeError::TooMany { name: folder.to_owned(), limit: LISTED_MAX });
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Returns the names of the folders in a folder, in order.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn folders(&self, folder: &str) -> Result<Vec<String>, LakeError> {
        let listed =
            self.retried(folder, |store, path| async move { store.list_with_delimiter(Some(&path)).await })?;
        let names = listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    /// Removes an object if it exists.
    ///
    /// # Errors
    /// Fails with `Request`, `Timeout` or `Stopped`.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LakeError> {
        let removed = self.retried(name, |store, path| async move { store.delete(&path).await });
        // An earlier attempt may have removed the object although its response was lost.
        found(removed).map(|_| ())
    }

    /// Makes a request, and repeats it while another attempt may succeed.
    fn retried<T, F>(
        &self,
        name: &str,
        request: impl Fn(Arc<dyn ObjectStore>, Path) -> F,
    ) -> Result<T, LakeError>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let path = object_path(name)?;
        self.attempts(|| self.once(name, request(Arc::clone(&self.store), path.clone())))
    }

    /// Makes attempts with growing pauses, until one succeeds or fails permanently.
    fn attempts<T>(&self, once: impl Fn() -> Result<T, LakeError>) -> Result<T, LakeError> {
        let mut attempt = 0;
        loop {
            let result = once();
            let is_last = attempt + 1 >= self.patience.attempts;
            match result {
                Err(LakeError::Request { ref error, .. }) if !is_last && can_pass(error) => {}
                Err(LakeError::Timeout { .. }) if !is_last => {}
                result => return result,
            }
            self.pause(self.patience.pause(attempt))?;
            attempt += 1;
        }
    }

    /// Makes a request exactly once.
    fn once<T>(
        &self,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, LakeError> {
        let timeout = self.patience.timeout;
        let answer = self.runtime.block_on(async {
            self.stop.interrupt(async { tokio::time::timeout(timeout, request).await }).await
        });
        match answer {
            None => Err(LakeError::Stopped),
            Some(Err(_)) => Err(LakeError::Timeout { name: name.to_owned(), seconds: timeout.as_secs() }),
            Some(Ok(result)) => result.map_err(|error| LakeError::Request { name: name.to_owned(), error }),
        }
    }
}

fn object_path(name: &str) -> Result<Path, LakeError> {
    Path::parse(name).map_err(|source| {
        let error = Error::InvalidPath { source };
        LakeError::Request { name: name.to_owned(), error }
    })
}

impl From<ObjectMeta> for ListedObject {
    fn from(meta: ObjectMeta) -> Self {
        Self { name: meta.location.into(), bytes: meta.size, put_s: meta.last_modified.timestamp() }
    }
}

async fn read_object(store: Arc<dyn ObjectStore>, path: Path, bytes_max: u64) -> object_store::Result<Bytes> {
    let object = store.get_opts(&path, GetOptions::default()).await?;
    // Check the size before the body is read, because the library reads the body in one piece.
    if object.meta.size > bytes_max {
        let what = format!("{} bytes, more than {bytes_max}: none of this program's", object.meta.size);
        return Err(Error::NotSupported { source: what.into() });
    }
    object.bytes().await
}

async fn read_from(store: Arc<dyn ObjectStore>, path: Path, offset: u64) -> object_store::Result<Bytes> {
    let options = GetOptions::new().with_range(Some(GetRange::Offset(offset)));
    let object = store.get_opts(&path, options).await?;
    // Check the range, because the library reserves memory for the whole range that the store
    // names.
    let bytes = object.range.end.saturating_sub(object.range.start);
    if bytes > OBJECT_BYTES_MAX {
        let what =
            format!("{bytes} bytes from {offset} on, more than {OBJECT_BYTES_MAX}: none of this program's");
        return Err(Error::NotSupported { source: what.into() });
    }
    object.bytes().await
}

/// Converts the error for a missing object to `None`.
fn found<T>(result: Result<T, LakeError>) -> Result<Option<T>, LakeError> {
    match result {
        Err(LakeError::Request { error: Error::NotFound { .. }, .. }) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns whether the same request may succeed on a later attempt.
fn can_pass(error: &Error) -> bool {
    // All other errors are responses that the store would repeat.
    matches!(error, Error::Generic { .. } | Error::JoinError { .. }) && !is_final(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a file that is uploaded in parts is unchanged, even if it is empty or ends with a
    // full part.
    #[test]
    fn files_are_uploaded_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().join("lake").display());
        let lake = Lake::open(&url, StoreAccess::Write, StopSignal::new().1, None).unwrap();
        for (name, bytes) in [("a/empty", 0), ("a/one", PART_BYTES), ("b", 2 * PART_BYTES + 5)] {
            let content: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let path = folder.path().join("file");
            std::fs::write(&path, &content).unwrap();
            lake.upload(name, &File::open(&path).unwrap()).unwrap();
            assert!(std::fs::read(folder.path().join("lake").join(name)).unwrap() == content, "{name}");
        }
    }

    // Proves that pauses double up to their maximum, and are never shorter than half of the current
    // maximum.
    #[test]
    fn pauses_double() {
        let patience = Patience::default();
        for (attempt, whole_ms) in [(0, 250), (1, 500), (3, 2000), (8, 60_000), (u32::MAX, 60_000)] {
            let (pause, whole) = (patience.pause(attempt), Duration::from_millis(whole_ms));
            assert!(pause >= whole / 2 && pause <= whole, "{attempt}: {pause:?}");
        }
    }
}
