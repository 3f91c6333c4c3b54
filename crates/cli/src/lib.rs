//! The library half of the binary.
