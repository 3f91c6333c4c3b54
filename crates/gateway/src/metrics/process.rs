//! What the operating system says about this process.

use std::fs;

/// Numbers that could be read; nothing where the system has no such file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) open_files: Option<u64>,
    pub(super) max_files: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
}

impl Process {
    /// Reads them now; three small files, so fit for a scrape and not for a request.
    pub(super) fn read() -> Self {
        Self {
            // The listing itself holds one descriptor while it is read.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| u64::try_from(files.count()).unwrap_or(u64::MAX).saturating_sub(1)),
            max_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            resident_bytes: fs::read_to_string("/proc/self/status")
                .ok()
                .and_then(|status| resident_bytes(&status)),
        }
    }
}

/// The line `VmRSS:   1234 kB` of `/proc/self/status`, in bytes.
fn resident_bytes(status: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_told_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
        assert_eq!(resident_bytes("VmRSS:\tmany kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_is_counted() {
        let _one = fs::File::open("/proc/self/status").unwrap();
        let process = Process::read();
        assert!(process.open_files.unwrap() >= 1);
        assert!(process.resident_bytes.unwrap() > 1 << 20);
    }
}
