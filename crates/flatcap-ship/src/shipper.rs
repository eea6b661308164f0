//! Ships segments. The shipper puts the objects of a segment, and then puts the segment's manifest.
//! The manifest marks the segment as complete.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use flatcap_format::host::HostName;
use flatcap_format::segment::{SegmentError, SegmentReader};
use flatcap_format::storage::open_regular;

use crate::backlog::SealedFile;
use crate::budget::CpuBudget;
use crate::conversion::{ObjectSink, SegmentContent};
use crate::error::{IdentityConflict, ShipError};
use crate::identity::host_identity;
use crate::lake::{Created, Lake};
use crate::manifest::{
    FORMAT, HostRecord, MANIFEST_BYTES_MAX, Manifest, ManifestHost, ManifestObject, to_json,
};
use crate::names::{ObjectGroup, Partition, host_object, manifests, raw_object};
use crate::object_writer::WrittenObject;
use crate::shared_outbox::{MessageCounts, SharedOutbox};

/// Number of bytes at the end of an object that are read back after the put.
// The footers of Parquet files rarely exceed this length.
const READ_BACK_BYTES: usize = 64 << 10;

/// Options for shipping segments.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShipOptions {
    /// The identity of the host, or `None` to derive it.
    pub(crate) host: Option<String>,
    /// Labels that are added to the recording's labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether the shipper also puts the unconverted segment file.
    pub(crate) is_raw: bool,
    /// Maximum CPU time as a share of one core, or `None` for no limit.
    pub(crate) cpu_share: Option<f64>,
}

/// A segment that was shipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShippedSegment {
    pub(crate) manifest: String,
    pub(crate) objects: usize,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// Number of recorded samples that could not be read.
    pub(crate) unreadable: u64,
    /// Number of values that are left out of their rows.
    pub(crate) left_out: u64,
    /// Problems of sources, one line each.
    pub(crate) problems: Vec<String>,
    /// Whether some bytes of the segment could not be read.
    pub(crate) is_damaged: bool,
}

/// Ships the segments of a data directory.
#[derive(Debug)]
pub(crate) struct Shipper<'l> {
    lake: &'l Lake,
    options: ShipOptions,
    budget: Option<CpuBudget>,
    /// Names of the manifests in the store, by folder. Only folders that were listed have an entry.
    known: BTreeMap<String, BTreeSet<String>>,
    /// Hosts by run.
    // All segments of a run belong to one host.
    hosts: BTreeMap<u64, ManifestHost>,
    /// Identities that are known to belong to this host.
    verified: BTreeSet<String>,
    /// The outbox that receives the names of the manifests that are put, or `None` if no messages
    /// are configured.
    outbox: Option<Arc<SharedOutbox>>,
}

impl<'l> Shipper<'l> {
    pub(crate) fn new(lake: &'l Lake, options: ShipOptions) -> Self {
        let budget = options.cpu_share.map(CpuBudget::new);
        let (known, hosts, verified) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { lake, options, budget, known, hosts, verified, outbox: None }
    }

    /// Returns this shipper with an outbox, in which it announces each manifest.
    pub(crate) fn with_outbox(self, outbox: Option<Arc<SharedOutbox>>) -> Self {
        Self { outbox, ..self }
    }

    /// Returns the message counts of this process, or `None` if it sends no messages.
    pub(crate) fn messages(&self) -> Option<MessageCounts> {
        self.outbox.as_ref().map(|outbox| outbox.counts())
    }

    /// Returns whether the store has a segment, according to the last listing.
    ///
    /// # Errors
    /// Fails if the segment cannot be read, or if the store fails.
    pub(crate) fn is_shipped(&mut self, file: &SealedFile) -> Result<bool, ShipError> {
        let group = self.group(file)?;
        let folder = manifests(group.tier, &group.partition);
        // List each folder only once. After that, this process knows which manifests it adds.
        if !self.known.contains_key(&folder) {
            let listed = self.lake.list(&folder)?;
            let ours =
                listed.into_iter().filter(|object| ObjectGroup::parse_manifest(&object.name).is_some());
            self.known.insert(folder.clone(), ours.map(|object| object.name).collect());
        }
        Ok(self.known.get(&folder).is_some_and(|names| names.contains(&group.manifest())))
    }

    /// Returns whether the store has a segment, without reading or requesting anything. Returns
    /// `None` if the store has not been listed for this segment yet.
    pub(crate) fn known(&self, file: &SealedFile) -> Option<bool> {
        let group = group_of(file, self.hosts.get(&file.name.run_id)?);
        let names = self.known.get(&manifests(group.tier, &group.partition))?;
        Some(names.contains(&group.manifest()))
    }

    /// Returns the group by which the objects of a segment are named.
    ///
    /// # Errors
    /// Returns the same errors as [`is_shipped`](Self::is_shipped).
    fn group(&mut self, file: &SealedFile) -> Result<ObjectGroup, ShipError> {
        Ok(group_of(file, &self.host(file)?))
    }

    /// Ships a segment. Reuses the objects that an earlier attempt has put.
    ///
    /// # Errors
    /// Any [`ShipError`]. After an error, the segment has no manifest.
    pub(crate) fn ship(&mut self, file: &SealedFile) -> Result<ShippedSegment, ShipError> {
        let group = self.group(file)?;
        let host = self.host(file)?;
        // Verify the identity before the first object is put, so that two hosts with one identity
        // cannot mix their rows.
        if !self.verified.contains(&host.id) {
            self.verify(&host, &file.path)?;
            self.verified.insert(host.id.clone());
        }
        let budget = &mut self.budget;
        let mut put = SegmentObjects { lake: self.lake, group: &group, budget, objects: Vec::new() };
        let mut manifest = SegmentContent::open(file)?.convert(host, &mut put)?;
        if self.options.is_raw {
            put.put_raw(file)?;
        }
        manifest.objects = put.objects;
        // Sort the objects, because a compressed segment is read in other groups of sources than a
        // raw one.
        manifest.objects.sort_by(|one, other| one.name.cmp(&other.name));
        let name = group.manifest();
        let bytes = Bytes::from(to_json(&manifest));
        // Record the name before the manifest is put. If the process ends between the two steps,
        // the next process finds out whether the message is due.
        if let Some(outbox) = &self.outbox {
            outbox.prepare(&name);
        }
        // If the manifest already exists, another process has shipped the same segment in the
        // meantime.
        let created = self.put_manifest(&group, &bytes);
        if let Some(outbox) = &self.outbox {
            outbox.post(&name, created.is_ok());
        }
        created?;
        self.known.entry(manifests(group.tier, &group.partition)).or_default().insert(name.clone());
        Ok(ShippedSegment::of(&manifest, name))
    }

    /// Puts the manifest of a segment and reads it back.
    fn put_manifest(&self, group: &ObjectGroup, bytes: &Bytes) -> Result<(), ShipError> {
        let name = group.manifest();
        self.lake.create(&name, bytes)?;
        let stored = self.lake.read(&name, MANIFEST_BYTES_MAX)?.unwrap_or_default();
        let is_same = |own: &Manifest, stored: &Manifest| {
            (&own.run, own.segment, &own.snapshot, own.rows)
                == (&stored.run, stored.segment, &stored.snapshot, stored.rows)
        };
        // An existing manifest may have been written by another version of this program.
        let parsed = |bytes| serde_json::from_slice::<Manifest>(bytes).ok();
        let is_stored = stored == *bytes
            || parsed(bytes).zip(parsed(&stored)).is_some_and(|(own, stored)| is_same(&own, &stored));
        if is_stored { Ok(()) } else { Err(ShipError::NotStored { name }) }
    }

    /// Returns the host of a segment.
    fn host(&mut self, file: &SealedFile) -> Result<ManifestHost, ShipError> {
        if let Some(known) = self.hosts.get(&file.name.run_id) {
            return Ok(known.clone());
        }
        let host = SegmentReader::open(&file.path)?.header().host.clone();
        let id = host_identity(&host, self.options.host.as_deref())
            .ok_or_else(|| ShipError::NoIdentity { path: file.path.clone() })?;
        let HostName { name, boot_id, labels, .. } = host;
        let labels = labels.into_iter().chain(self.options.labels.clone()).collect();
        let host = ManifestHost { id, name, boot_id: boot_id.unwrap_or_default(), labels };
        self.hosts.insert(file.name.run_id, host.clone());
        Ok(host)
    }

    /// Claims the identity for this host if no host owns it. If a host owns the identity, checks
    /// that it is this host.
    fn verify(&self, host: &ManifestHost, path: &Path) -> Result<(), ShipError> {
        let own = HostRecord { format: FORMAT, name: host.name.clone(), boot_id: host.boot_id.clone() };
        let object = host_object(&host.id);
        if self.lake.create(&object, &Bytes::from(to_json(&own)))? == Created::New {
            return Ok(());
        }
        let bytes = self.lake.read(&object, MANIFEST_BYTES_MAX)?.unwrap_or_default();
        let known: HostRecord = serde_json::from_slice(&bytes).map_err(|error| ShipError::Object {
            name: object.clone(),
            what: format!("no record of a host: {error}"),
        })?;
        // The boot id changes with each restart, so only the name identifies the host.
        if known.name == own.name {
            return Ok(());
        }
        Err(ShipError::SameIdentity(Box::new(IdentityConflict {
            path: path.to_owned(),
            id: host.id.clone(),
            own: own.name,
            own_boot: own.boot_id,
            known: known.name,
            known_boot: known.boot_id,
            object,
        })))
    }
}

impl ShippedSegment {
    fn of(manifest: &Manifest, name: String) -> Self {
        Self {
            manifest: name,
            objects: manifest.objects.len(),
            bytes: manifest.objects.iter().map(|object| object.bytes).sum(),
            rows: manifest.rows,
            unreadable: manifest.unreadable,
            left_out: manifest.sources.iter().map(|source| source.left_out).sum(),
            problems: manifest
                .sources
                .iter()
                .filter(|source| !source.problem.is_empty())
                .map(|source| format!("{}: {}", source.source, source.problem))
                .collect(),
            is_damaged: !manifest.damage.is_empty(),
        }
    }
}

/// Returns the group by which the objects of a segment of a host are named.
fn group_of(file: &SealedFile, host: &ManifestHost) -> ObjectGroup {
    let partition = Partition::new(file.name.created_s, &host.id);
    match &file.snapshot {
        Some(name) => ObjectGroup::of_snapshot(partition, file.name.run_id, name),
        None => ObjectGroup::of_segment(partition, file.name.run_id, file.name.number),
    }
}

/// Puts the objects of a segment.
struct SegmentObjects<'p> {
    lake: &'p Lake,
    group: &'p ObjectGroup,
    budget: &'p mut Option<CpuBudget>,
    objects: Vec<ManifestObject>,
}

impl SegmentObjects<'_> {
    /// Puts the segment file itself, and reads back the end of the object. The file is put on every
    /// attempt, because compression changes its length.
    fn put_raw(&self, file: &SealedFile) -> Result<(), ShipError> {
        let opened = open_regular(&file.path);
        let opened = opened.map_err(|error| SegmentError::Io { path: file.path.clone(), error })?;
        let name = match &file.snapshot {
            Some(_) => format!("{}.bin", self.group.stem()),
            None => file.name.to_string(),
        };
        let name = raw_object(&self.group.partition, &name);
        self.lake.upload(&name, &opened)?;
        let unreadable = |error| SegmentError::Io { path: file.path.clone(), error };
        let length = opened.metadata().map_err(unreadable)?.len();
        let start = length.saturating_sub(READ_BACK_BYTES as u64);
        let mut end = vec![0; usize::try_from(length - start).unwrap_or_default()];
        opened.read_exact_at(&mut end, start).map_err(unreadable)?;
        if has_end(self.lake, &name, length, &end)? { Ok(()) } else { Err(ShipError::NotStored { name }) }
    }
}

impl ObjectSink for SegmentObjects<'_> {
    fn put(&mut self, table: &str, part: u32, object: WrittenObject) -> Result<(), ShipError> {
        let name = self.group.table(table, part);
        let bytes = Bytes::from(object.bytes);
        put_object(self.lake, &name, &bytes)?;
        self.objects.push(ManifestObject { name, rows: object.rows, bytes: bytes.len() as u64 });
        Ok(())
    }

    fn rest(&mut self) -> Result<(), ShipError> {
        let rest = self.budget.as_mut().map(CpuBudget::rest).unwrap_or_default();
        Ok(self.lake.pause(rest)?)
    }
}

/// Puts an object of a segment or an hour that has no manifest yet, and reads its end back. If
/// there already is an object with the same length and end, an earlier attempt has written it, and
/// the object stays. Any other existing object was written by another version of this program, and
/// is replaced.
///
/// # Errors
/// Fails with `NotStored` if the store does not return an object that it has accepted. Also returns
/// errors of the store.
pub(crate) fn put_object(lake: &Lake, name: &str, bytes: &Bytes) -> Result<(), ShipError> {
    if lake.create(name, bytes)? == Created::Existed {
        if is_stored(lake, name, bytes)? {
            return Ok(());
        }
        // Replacing the object is safe, because no query reads an object without a manifest.
        lake.replace(name, bytes)?;
    }
    if is_stored(lake, name, bytes)? { Ok(()) } else { Err(ShipError::NotStored { name: name.to_owned() }) }
}

/// Returns whether an object has the length and the last bytes of `bytes`.
fn is_stored(lake: &Lake, name: &str, bytes: &Bytes) -> Result<bool, ShipError> {
    // Stores replace an object atomically, and the end of a Parquet file describes all of its rows.
    // So reading 64 KiB proves as much as reading the whole object, which would double the
    // transfer.
    let start = bytes.len().saturating_sub(READ_BACK_BYTES);
    has_end(lake, name, bytes.len() as u64, bytes.get(start..).unwrap_or_default())
}

/// Returns whether an object has the given length and ends with the bytes `end`.
fn has_end(lake: &Lake, name: &str, length: u64, end: &[u8]) -> Result<bool, ShipError> {
    // A range that begins beyond the end of the object is an error, so compare the length first.
    if lake.size(name)? != Some(length) {
        return Ok(false);
    }
    let stored = lake.read_end(name, length - end.len() as u64)?;
    Ok(stored.is_some_and(|stored| stored == end))
}
