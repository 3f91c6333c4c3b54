//! `seawall probe`: asks a gateway on this host whether it is ready, or alive.
//!
//! The admin port serves loopback, where a kubelet is not. A probe that is a command runs within
//! the pod, needs no shell and no other program in the image, and leaves the port as it is.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;

use crate::args::{ProbeArgs, Question};

/// What a probe was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the answer is yes.
    pub yes: bool,
    /// The status line.
    pub said: String,
}

/// Asks, and waits a second at most for each step.
///
/// # Errors
/// Nobody answers, or what answers is no gateway.
pub fn probe(args: &ProbeArgs) -> anyhow::Result<Answer> {
    let line = ask(args).with_context(|| format!("ask {}", args.admin))?;
    match line.split(' ').nth(1) {
        Some("200") => Ok(Answer { yes: true, said: line }),
        Some("503") => Ok(Answer { yes: false, said: line }),
        _ => anyhow::bail!("{} answers {line:?}: no gateway's admin port?", args.admin),
    }
}

/// The first line of the answer.
fn ask(args: &ProbeArgs) -> io::Result<String> {
    let path = match args.what {
        Question::Ready => "/ready",
        Question::Live => "/livez",
    };
    let mut stream = TcpStream::connect_timeout(&args.admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", args.admin);
    stream.write_all(request.as_bytes())?;
    let mut read = Vec::new();
    let mut some = [0; 256];
    while !read.contains(&b'\n') && read.len() < LONGEST_LINE {
        match stream.read(&mut some)? {
            0 => break,
            count => read.extend_from_slice(&some[..count]),
        }
    }
    let line = read.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// As long as a kubelet waits by default. Source: kubernetes-termination.
const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_LINE: usize = 1_024;
