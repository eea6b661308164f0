//! A store in memory that fails, for tests. On any request, the store can refuse the request, lose
//! the response, never respond, or fail permanently.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, Extensions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// The way in which a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request is refused and nothing is done.
    Refused,
    /// The store executes the request, but the response is lost.
    AfterTheFact,
    /// There is no response, and the request is not executed.
    Silent,
    /// A put is not executed, but the response says that it was.
    Forgotten,
}

/// The plan that determines which requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultPlan {
    /// No request fails.
    Healthy,
    /// From the request with this index on, all requests fail permanently, as if the process had
    /// been killed. If the flag is true, the first of the failing requests is executed before it
    /// fails.
    EndsAt(u64, bool),
    /// One in `one_in` requests fails. A random generator with the seed `seed` selects the requests
    /// that fail.
    Random { seed: u64, one_in: u64 },
    /// One in `one_in` puts is dropped. A random generator with the seed `seed` selects the puts
    /// that are dropped.
    Forgets { seed: u64, one_in: u64 },
}

/// An upload that is accepted but not stored.
#[derive(Debug)]
struct ForgottenUpload;

#[async_trait]
impl MultipartUpload for ForgottenUpload {
    fn put_part(&mut self, _data: PutPayload) -> UploadPart {
        Box::pin(async { Ok(()) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A store of objects in memory. The objects outlive the clients of the store.
#[derive(Debug, Clone)]
pub(crate) struct FailingStore {
    inner: Arc<InMemory>,
    plan: FaultPlan,
    requests: Arc<AtomicU64>,
}

impl FailingStore {
    pub(crate) fn new() -> Self {
        Self { inner: Arc::default(), plan: FaultPlan::Healthy, requests: Arc::default() }
    }

    /// Creates a store with these objects.
    pub(crate) fn of(objects: &BTreeMap<String, Bytes>) -> Self {
        let store = Self::new();
        let inner = Arc::clone(&store.inner);
        let put = async move {
            for (name, bytes) in objects {
                inner.put(&Path::from(name.as_str()), bytes.clone().into()).await.unwrap();
            }
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(put);
        store
    }

    /// Returns another client of this store, which has the same objects. Its requests fail
    /// according to `plan`.
    pub(crate) fn with(&self, plan: FaultPlan) -> Self {
        Self { inner: Arc::clone(&self.inner), plan, requests: Arc::default() }
    }

    /// Returns the number of requests that this client has made.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns all objects.
    pub(crate) fn objects(&self) -> BTreeMap<String, Bytes> {
        let inner = Arc::clone(&self.inner);
        let all = async move {
            let listed = inner.list(None).try_collect::<Vec<ObjectMeta>>().await.unwrap();
            let mut objects = BTreeMap::new();
            for meta in listed {
                let bytes = inner.get(&meta.location).await.unwrap().bytes().await.unwrap();
                objects.insert(meta.location.to_string(), bytes);
            }
            objects
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(all)
    }

    fn next_fault(&self) -> (Option<Fault>, bool) {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        match self.plan {
            FaultPlan::Healthy => (None, false),
            FaultPlan::EndsAt(end, _) if request < end => (None, false),
            FaultPlan::EndsAt(end, true) if request == end => (Some(Fault::AfterTheFact), true),
            FaultPlan::EndsAt(..) => (Some(Fault::Refused), true),
            FaultPlan::Forgets { seed, one_in } => {
                let is_forgotten = generated(seed, request).is_multiple_of(one_in);
                (is_forgotten.then_some(Fault::Forgotten), false)
            }
            FaultPlan::Random { seed, one_in } => {
                let mixed = generated(seed, request);
                let kinds = [Fault::Refused, Fault::AfterTheFact, Fault::Silent];
                let kind = kinds[usize::try_from((mixed >> 32) % 3).unwrap()];
                (mixed.is_multiple_of(one_in).then_some(kind), false)
            }
        }
    }

    async fn answer<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let failed = |ends: bool| {
            let source = "simulated".into();
            if ends {
                // A request is not repeated after an error of this kind.
                Error::PermissionDenied { path: String::new(), source }
            } else {
                Error::Generic { store: "simulated", source }
            }
        };
        match self.next_fault() {
            (None | Some(Fault::Forgotten), _) => request.await,
            (Some(Fault::Refused), ends) => Err(failed(ends)),
            (Some(Fault::AfterTheFact), ends) => {
                drop(request.await);
                Err(failed(ends))
            }
            (Some(Fault::Silent), _) => pending().await,
        }
    }
}

/// Returns the element with index `place` of the random sequence that `seed` determines.
pub(crate) fn generated(seed: u64, place: u64) -> u64 {
    mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(place))
}

/// Computes the output function of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for FailingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailingStore")
    }
}

#[async_trait]
impl ObjectStore for FailingStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if matches!(self.plan, FaultPlan::Forgets { .. }) && self.next_fault().0 == Some(Fault::Forgotten) {
            return Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() });
        }
        self.answer(self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if matches!(self.plan, FaultPlan::Forgets { .. }) && self.next_fault().0 == Some(Fault::Forgotten) {
            return Ok(Box::new(ForgottenUpload));
        }
        self.answer(self.inner.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.answer(self.inner.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.answer(self.inner.get_ranges(path, ranges)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        paths
            .then(move |path| {
                let store = store.clone();
                async move {
                    let path = path?;
                    store.answer(store.inner.delete(&path)).await?;
                    Ok(path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let all = store.inner.list(prefix.as_ref()).try_collect::<Vec<ObjectMeta>>();
            match store.answer(all).await {
                Ok(all) => futures_util::stream::iter(all.into_iter().map(Ok)).boxed(),
                Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
            }
        };
        futures_util::stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.answer(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(Error::NotSupported { source: "not used".into() })
    }
}
