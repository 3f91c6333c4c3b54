//! Where a configuration came from, so that it can be read again and shown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dump::Given;
use super::report::{ConfigErrors, Source, Warning};
use super::{GatewayConfig, MAX_BYTES, Overrides};

/// The text of a configuration, and the file it was read from. It says nothing about what was
/// configured, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Origin(Option<Arc<Written>>);

#[derive(Debug)]
struct Written {
    file: Option<PathBuf>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    hash: String,
    given: Given,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl Origin {
    pub(super) fn new(
        file: Option<&Path>,
        overrides: &Overrides,
        source: &Source,
        given: Given,
    ) -> Self {
        Self(Some(Arc::new(Written {
            file: file.map(Path::to_owned),
            listen: overrides.listen,
            admin: overrides.admin,
            hash: format!("{:016x}", fnv1a(source.text.as_bytes())),
            given,
        })))
    }

    /// The file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.0.as_ref()?.file.as_deref()
    }

    /// Sixteen hexadecimal digits that tell texts apart; empty where nothing was written.
    #[must_use]
    pub fn hash(&self) -> &str {
        self.0.as_ref().map_or("", |written| &written.hash)
    }

    /// What its variables gave.
    pub(super) fn given(&self) -> Given {
        self.0.as_ref().map(|written| written.given.clone()).unwrap_or_default()
    }

    /// Whether the file's text is still this one. Blocks.
    pub(crate) fn is_unchanged(&self) -> bool {
        let bytes = self.file().and_then(|file| crate::file::read(file, MAX_BYTES).ok());
        bytes.is_some_and(|bytes| format!("{:016x}", fnv1a(&bytes)) == self.hash())
    }

    /// Reads the file again, with the same addresses in place of its own; nothing where there is
    /// no file.
    ///
    /// # Errors
    /// As [`GatewayConfig::load_with`].
    pub fn read(&self) -> Option<Result<(GatewayConfig, Vec<Warning>), ConfigErrors>> {
        let written = self.0.as_ref()?;
        let file = written.file.as_ref()?;
        Some(GatewayConfig::load_with(file, written.listen, written.admin))
    }
}

/// Tells texts apart; a sum, not a seal. Source: fnv.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    bytes.iter().fold(FNV_BASIS, step)
}

/// Source: fnv.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// Source: fnv.
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_published_vectors() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
        }
    }
}
