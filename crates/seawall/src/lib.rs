//! What users add.
