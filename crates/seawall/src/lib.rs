//! What users add to a client or a server: the policies of `seawall-policy`, driven.

mod clock;

pub use clock::{Clock, ThreadRng};
