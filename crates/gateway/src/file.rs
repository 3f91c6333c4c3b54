//! Reads the files that a configuration names: at most so much, and only what is a file.
//!
//! A named pipe is waited for when it is opened and again when it is read, for ever if nobody
//! writes. So nothing else than a regular file is opened, and should one become a pipe in between,
//! neither waits.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// What is in the file, at most one byte more than `most`.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let not_a_file = || io::Error::other("not a file");
    // A device may do something when it is opened.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_a_file());
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(not_a_file());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts a named pipe that nobody writes where a file is expected.
#[cfg(test)]
pub(crate) fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "{}", path.display());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::config::GatewayConfig;

    /// What the configuration says of it, and nothing for ever.
    fn refused(text: String) -> String {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(GatewayConfig::parse(&text, "test").unwrap_err()));
        told.recv_timeout(Duration::from_secs(10)).expect("it waits for the pipe").to_string()
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_refused_by_its_field_and_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("seawall-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (at, plain) = (folder.join("pipe"), folder.join("plain"));
        let _ = std::fs::remove_file(&at);
        pipe(&at);
        std::fs::write(&plain, "").unwrap();
        let (pipe, plain) = (at.display().to_string(), plain.display());
        let listener = |tls| format!("listeners: [{{tls: {{{tls}}}}}]\n");
        let upstream = |rest| format!("upstreams: {{b: {{endpoints: ['https://h'], {rest}}}}}\n");
        let up = "upstreams: {a: {endpoints: ['http://h:1']}}\n";
        for (field, text) in [
            ("listeners[0].tls.cert", listener(format!("cert: {pipe}, key: {plain}")) + up),
            ("upstreams.b.tls.ca", upstream(format!("tls: {{ca: {pipe}}}"))),
            ("upstreams.b.credentials.file", upstream(format!("credentials: {{file: {pipe}}}"))),
            ("admin.token_file", format!("admin: {{token_file: {pipe}}}\n{up}")),
        ] {
            let told = refused(format!("version: 1\n{text}"));
            for part in [field, &pipe, "not a file"] {
                assert!(told.contains(part), "{part} in {told}");
            }
        }
        assert_eq!(read(&at, 1).unwrap_err().to_string(), "not a file");
        assert!(read(&folder, 1).is_err());
        std::fs::write(folder.join("long"), "long").unwrap();
        assert_eq!(read(&folder.join("long"), 2).unwrap(), b"lon");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
