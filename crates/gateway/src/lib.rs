//! The gateway.

mod units;

pub use units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};
