//! The pool against real sockets on loopback.

mod connecting;
mod http1_exchange;
mod http2_exchange;
mod reloading;
mod soak;
mod support;
mod waiting;
