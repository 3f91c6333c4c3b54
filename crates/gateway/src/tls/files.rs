//! PEM files: read with a bound, and refused with the reason.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use super::validity::Validity;
use crate::config::CertificateFiles;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    /// The key of the configuration under `tls`, like `certificates[0].key`.
    pub(crate) key: String,
    pub(crate) path: PathBuf,
    /// What is allowed and what this one is, as it fits after "give".
    pub(crate) allowed: String,
}

impl FileError {
    pub(super) fn new(key: &str, path: &Path, allowed: impl Into<String>) -> Self {
        Self { key: key.to_owned(), path: path.to_owned(), allowed: allowed.into() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is not allowed; give {}", self.key, self.path.display(), self.allowed)
    }
}

/// The contents of a set of files, as far as they can be read.
#[derive(Debug, Default)]
pub(super) struct Contents(Vec<(PathBuf, io::Result<Vec<u8>>)>);

impl Contents {
    /// Reads each file once.
    pub(super) fn read<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut contents = Self::default();
        for path in paths {
            if !contents.0.iter().any(|(known, _)| known == path) {
                contents.0.push((path.to_owned(), read_bounded(path)));
            }
        }
        contents
    }

    /// A number that is another if any file is.
    pub(super) fn fingerprint(&self) -> u64 {
        Self::number(self.0.iter())
    }

    /// The same of one file.
    pub(super) fn fingerprint_of(&self, path: Option<&Path>) -> u64 {
        Self::number(self.0.iter().filter(|(known, _)| Some(known.as_path()) == path))
    }

    fn number<'a>(files: impl Iterator<Item = &'a (PathBuf, io::Result<Vec<u8>>)>) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (path, content) in files {
            path.hash(&mut hasher);
            match content {
                Ok(bytes) => bytes.hash(&mut hasher),
                Err(error) => error.to_string().hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    fn get(&self, key: &str, path: &Path) -> Result<&[u8], FileError> {
        let found = self.0.iter().find(|(known, _)| known == path).map(|(_, content)| content);
        match found {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(error)) => {
                Err(FileError::new(key, path, format!("a PEM file that can be read: {error}")))
            }
            None => Err(FileError::new(key, path, "a PEM file that can be read")),
        }
    }

    fn certificates(
        &self,
        key: &str,
        path: &Path,
    ) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let read = CertificateDer::pem_slice_iter(self.get(key, path)?)
            .collect::<Result<Vec<_>, pem::Error>>();
        match read {
            Ok(certificates) if certificates.is_empty() => {
                let allowed = "a PEM file with a certificate; this one has none";
                Err(FileError::new(key, path, allowed))
            }
            Ok(certificates) => Ok(certificates),
            Err(error) => {
                Err(FileError::new(key, path, format!("a PEM file with certificates: {error}")))
            }
        }
    }

    /// A certificate with its key, and when it ends.
    pub(super) fn pair(
        &self,
        keys: (&str, &str),
        files: &CertificateFiles,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(CertifiedKey, Option<Validity>), FileError> {
        let chain = self.certificates(keys.0, &files.cert)?;
        let validity = chain.first().and_then(|first| Validity::of(first));
        let private = PrivateKeyDer::from_pem_slice(self.get(keys.1, &files.key)?);
        let refuse = |allowed: String| FileError::new(keys.1, &files.key, allowed);
        let private = private.map_err(|error| {
            refuse(match error {
                pem::Error::NoItemsFound => {
                    "a PEM file with a private key that needs no password; this one has none".into()
                }
                error => format!("a PEM file with a private key: {error}"),
            })
        })?;
        let pair =
            CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    refuse(format!("the key of {}; this is another's", files.cert.display()))
                }
                rustls::Error::InvalidCertificate(error) => {
                    let allowed = format!("a certificate of X.509 version 3 ({error:?})");
                    FileError::new(keys.0, &files.cert, allowed)
                }
                error => refuse(format!("an RSA, ECDSA or Ed25519 key ({error})")),
            })?;
        Ok((pair, validity))
    }

    /// Roots to trust.
    pub(super) fn roots(&self, key: &str, path: &Path) -> Result<RootCertStore, FileError> {
        let mut roots = RootCertStore::empty();
        for (at, certificate) in self.certificates(key, path)?.into_iter().enumerate() {
            roots.add(certificate).map_err(|error| {
                let allowed = format!("certificates to trust; number {} is none: {error}", at + 1);
                FileError::new(key, path, allowed)
            })?;
        }
        Ok(roots)
    }
}

/// The file, if it is not larger than it may be.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = crate::file::read(path, FILE_BYTES_MAX)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than 1MiB"));
    }
    Ok(bytes)
}

/// More than all the roots of a system take. Source: own choice.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
