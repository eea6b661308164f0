//! The files of the page, which web/build.mjs builds from their sources.

use std::io::Read;

use flate2::read::GzDecoder;
use hyper::body::Bytes;

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    path: &'static str,
    pub(super) media_type: &'static str,
    compressed: &'static [u8],
}

const ASSETS: [Asset; 4] = [
    Asset {
        path: "/",
        media_type: "text/html; charset=utf-8",
        compressed: include_bytes!("../../../../web/assets/index.html.gz"),
    },
    Asset {
        path: "/page.js",
        media_type: "text/javascript; charset=utf-8",
        compressed: include_bytes!("../../../../web/assets/page.js.gz"),
    },
    Asset {
        path: "/page.css",
        media_type: "text/css; charset=utf-8",
        compressed: include_bytes!("../../../../web/assets/page.css.gz"),
    },
    Asset {
        path: "/icon.svg",
        media_type: "image/svg+xml",
        compressed: include_bytes!("../../../../web/assets/icon.svg.gz"),
    },
];

impl Asset {
    /// Returns the file at a path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.path == path)
    }

    /// Returns the content compressed with gzip.
    pub(super) fn compressed(&self) -> Bytes {
        Bytes::from_static(self.compressed)
    }

    /// Returns the content for a client that does not accept gzip.
    pub(super) fn plain(&self) -> Bytes {
        let mut content = Vec::new();
        // The content is part of the program and a test decompresses it, so this cannot fail.
        let _whole = GzDecoder::new(self.compressed).read_to_end(&mut content);
        content.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size limit of all compressed files together, in bytes. On a slow connection, a page must
    /// load all files before it can draw.
    const COMPRESSED_BYTES_MAX: usize = 150 << 10;

    // Proves that all files decompress and that together they are small. The page loads nothing
    // from another host and has no inline script or style.
    #[test]
    fn the_page_is_small_and_alone() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.compressed.len()).sum();
        assert!(bytes <= COMPRESSED_BYTES_MAX, "{bytes} bytes");
        for asset in &ASSETS {
            let text = String::from_utf8(asset.plain().to_vec()).unwrap();
            assert!(!text.is_empty(), "{}", asset.path);
            for (at, _) in text.match_indices("://") {
                let url: String = text[at + 3..].chars().take(30).collect();
                let is_name =
                    ["www.w3.org/", "github.com/leeoniya/uPlot"].iter().any(|own| url.starts_with(own));
                assert!(is_name, "{}: {url}", asset.path);
            }
            if asset.path == "/" {
                assert_eq!(text.matches("<script").count(), 1);
                assert!(text.contains("<script type=\"module\" src=\"page.js\"></script>"));
                let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
                assert!(!text.contains("style=") && !text.contains("<style"));
                assert!(!text.split_whitespace().any(is_handler));
            }
        }
    }
}
