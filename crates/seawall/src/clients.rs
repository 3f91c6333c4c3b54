//! What the errors of well-known clients mean; a feature for each.

#[cfg(feature = "hyper")]
pub(crate) mod hyper;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "reqwest")]
pub(crate) mod reqwest;
#[cfg(feature = "tonic")]
pub(crate) mod tonic;
