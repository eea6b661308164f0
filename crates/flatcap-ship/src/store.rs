//! Opens the store of a URL.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use rustix::process::geteuid;

use crate::bounded_answers::BoundedConnector;
use crate::lake_error::LakeError;

/// Maximum time of a request, even for an object of 16 MiB.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of retries of a request by the library. A stop signal cannot interrupt the
/// library's retries, so `Lake` retries requests itself.
const LIBRARY_RETRIES: usize = 1;

/// Mode bits that allow the group or everyone to create and remove names in a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The sticky bit. In a directory with this bit, only the owner of a file can rename or remove it.
const STICKY: u32 = 0o1000;

/// The use of a store, which determines whether a missing directory is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreAccess {
    /// Objects will be put. A missing directory is created.
    Write,
    /// Objects will be read. A missing store is treated as an empty store.
    Read,
}

/// Opens the store of a URL with the rights and credentials of the environment. Makes no request.
///
/// # Errors
/// Fails with `Url` if there is no store for the URL, with `Directory` if the directory cannot be
/// created or used, or with `Request` if the store refuses the settings.
pub(crate) fn open_store(url: &str, access: StoreAccess) -> Result<Arc<dyn ObjectStore>, LakeError> {
    let malformed = |what: &str| LakeError::Url { url: without_secrets(url), what: what.to_owned() };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| malformed("no scheme; a store is file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"))?;
    if rest.contains(['?', '#', '@', '%']) || rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(malformed("?, #, @, %, spaces and control characters have no meaning in it"));
    }
    let failed = |error| LakeError::Request { name: url.to_owned(), error };
    if scheme == "file" {
        if !rest.starts_with('/') {
            return Err(malformed("a directory has an absolute path, so three slashes: file:///srv/lake"));
        }
        let folder = std::path::Path::new(rest);
        // Check the owners before the directory is created, because creating it follows links too.
        check_owners(folder).map_err(|error| LakeError::Directory { url: url.to_owned(), error })?;
        if access == StoreAccess::Write {
            std::fs::create_dir_all(folder)
                .map_err(|error| LakeError::Directory { url: url.to_owned(), error })?;
        } else if !folder.exists() {
            // `new_with_prefix` refuses a missing directory. For a reader, that is an empty store.
            let prefix = Path::from_absolute_path(folder).map_err(|error| malformed(&error.to_string()))?;
            return Ok(Arc::new(PrefixStore::new(LocalFileSystem::new(), prefix)));
        }
        // The recorder may remove a segment as soon as the segment is reported as shipped. So the
        // objects of the segment must survive a crash of this host.
        return Ok(Arc::new(LocalFileSystem::new_with_prefix(rest).map_err(failed)?.with_fsync(true)));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(malformed("no bucket"));
    }
    // Pass only the bucket to the library, because it would ignore the prefix.
    let bucket_url = format!("{scheme}://{bucket}");
    let retry = RetryConfig {
        max_retries: LIBRARY_RETRIES,
        retry_timeout: REQUEST_TIMEOUT,
        ..RetryConfig::default()
    };
    install_cryptography();
    let timeout = format!("{}s", REQUEST_TIMEOUT.as_secs());
    let store: Arc<dyn ObjectStore> = match scheme {
        "s3" => {
            let builder = AmazonS3Builder::from_env().with_url(bucket_url).with_retry(retry);
            let builder = builder.with_http_connector(BoundedConnector);
            let key = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            Arc::new(builder.with_config(key, timeout).build().map_err(failed)?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(bucket_url).with_retry(retry);
            let builder = builder.with_http_connector(BoundedConnector);
            let key = GoogleConfigKey::Client(ClientConfigKey::Timeout);
            Arc::new(builder.with_config(key, timeout).build().map_err(failed)?)
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(bucket_url).with_retry(retry);
            let builder = builder.with_http_connector(BoundedConnector);
            let key = AzureConfigKey::Client(ClientConfigKey::Timeout);
            Arc::new(builder.with_config(key, timeout).build().map_err(failed)?)
        }
        _ => return Err(malformed("no known store; known are file, s3, gs and az")),
    };
    let prefix = Path::parse(prefix).map_err(|error| malformed(&error.to_string()))?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

/// If this process is root, checks that no other user can redirect the paths of a store in the file
/// system. The check is necessary because the library opens objects by path and follows symbolic
/// links.
fn check_owners(folder: &std::path::Path) -> io::Result<()> {
    // If this process has no special rights, another user gains nothing by redirecting its paths.
    if !geteuid().is_root() {
        return Ok(());
    }
    // A link may lead through a directory that belongs to another user.
    let nearest = folder.ancestors().find_map(|path| Some((path, path.canonicalize().ok()?)));
    if let Some((path, without_links)) = nearest.filter(|(path, resolved)| path != resolved) {
        let why = format!(
            "{} contains a symbolic link, which root does not follow here; use {}",
            path.display(),
            without_links.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    for path in folder.ancestors() {
        let Ok(status) = path.symlink_metadata() else { continue };
        let is_open = status.mode() & WRITABLE_BY_OTHERS != 0 && status.mode() & STICKY == 0;
        if status.uid() != 0 || is_open {
            let user =
                if status.uid() == 0 { "other users".to_owned() } else { format!("user {}", status.uid()) };
            let why = format!(
                "{} can be changed by {user}, who could redirect what root writes; run flatcap-ship as \
                 the owner of the directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

/// Returns a form of a URL without secrets, for error messages. If the URL may contain a secret,
/// only its scheme is returned.
fn without_secrets(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if url.contains(['?', '#', '@', '%']) { format!("{scheme}://...") } else { url.to_owned() }
}

/// Installs the cryptography provider for TLS. This process has no default provider.
pub(crate) fn install_cryptography() {
    // No other code in this process installs a provider. A second call changes nothing.
    let _known = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a URL without a store is refused with the reason, before any request and without
    // the secrets that the URL may have. Only writing creates a directory.
    #[test]
    fn malformed_urls_are_refused() {
        for (url, what) in [
            ("/srv/lake", "no scheme"),
            ("file://srv/lake", "three slashes"),
            ("s3://", "no bucket"),
            ("s3:///prefix", "no bucket"),
            ("ftp://bucket/x", "no known store"),
            ("s3://bucket/a b", "spaces"),
            ("s3://bucket/a//b", "path"),
        ] {
            let error = open_store(url, StoreAccess::Write).unwrap_err().to_string();
            assert!(error.starts_with(url) && error.to_lowercase().contains(what), "{url}: {error}");
        }
        for url in ["s3://key:secret@bucket/x", "az://container?sv=1&sig=secret", "secret@x"] {
            let error = open_store(url, StoreAccess::Write).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("://..."), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/a/b", folder.path().display());
        assert!(open_store(&url, StoreAccess::Read).is_ok() && !folder.path().join("a").exists());
        assert!(open_store(&url, StoreAccess::Write).is_ok() && folder.path().join("a/b").is_dir());
    }
}
