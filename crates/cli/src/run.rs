//! `seawall run`: from the command line to a configuration and a runtime to serve it on.

use std::io;

use seawall_gateway::{ConfigErrors, GatewayConfig, Warning};
use tokio::runtime::{Builder, Runtime};

use crate::args::RunArgs;

/// The configuration that the command line asks for.
///
/// # Errors
/// What is wrong with it, or that its file cannot be read.
pub fn config(args: &RunArgs) -> Result<(GatewayConfig, Vec<Warning>), ConfigErrors> {
    match (&args.config, &args.upstream) {
        (Some(file), _) => GatewayConfig::load_with(file, args.listen, args.admin),
        (None, upstream) => {
            let url = upstream.as_deref().unwrap_or_default();
            GatewayConfig::for_upstream(url, args.listen, args.admin)
        }
    }
}

/// Threads that serve requests: as many as asked for, or one for each core this process may use.
#[must_use]
pub fn workers(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

/// A runtime with so many workers; the calling thread is the worker if there is only one.
///
/// # Errors
/// The system refuses threads or an event queue.
pub fn runtime(workers: usize) -> io::Result<Runtime> {
    let mut builder = if workers <= 1 {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).thread_name("seawall-worker");
        builder
    };
    builder.enable_all().build()
}

#[cfg(test)]
mod tests {
    use tokio::runtime::RuntimeFlavor;

    use super::*;

    fn args(upstream: Option<&str>, config: Option<&str>) -> RunArgs {
        RunArgs {
            upstream: upstream.map(str::to_owned),
            config: config.map(Into::into),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            admin: Some("127.0.0.1:1".parse().unwrap()),
            workers: None,
        }
    }

    #[test]
    fn the_command_line_overrides_the_addresses_of_both_kinds_of_configuration() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../seawall.example.yaml");
        for args in [args(Some("http://127.0.0.1:9000"), None), args(None, Some(example))] {
            let (config, warnings) = config(&args).unwrap();
            assert_eq!(config.listeners[0].address.tcp(), args.listen);
            assert_eq!(Some(config.admin), args.admin);
            assert!(warnings.is_empty());
        }
        assert!(config(&args(None, Some("/nowhere"))).unwrap_err().is_unreadable());
        assert!(!config(&args(Some("127.0.0.1"), None)).unwrap_err().is_unreadable());
    }

    #[test]
    fn one_worker_is_the_calling_thread_and_more_are_threads() {
        let flavor = |workers| runtime(workers).unwrap().handle().runtime_flavor();
        assert_eq!(flavor(1), RuntimeFlavor::CurrentThread);
        assert_eq!(flavor(2), RuntimeFlavor::MultiThread);
        assert_eq!(workers(Some(3)), 3);
        assert!(workers(None) >= 1);
    }
}
