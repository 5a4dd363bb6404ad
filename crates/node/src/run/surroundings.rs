//! Measures the memory and disk of a process, for its statements.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use quorate_process::Room;

/// The measured directory of a replica.
#[derive(Clone, Debug)]
pub struct Surroundings {
    dir: PathBuf,
}

impl Surroundings {
    /// Returns the measurement for a replica with its files in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }
}

impl quorate_process::Surroundings for Surroundings {
    fn look(&self) -> Room {
        let disk = statvfs(&self.dir).map_or((0, 0), |disk| {
            let block = disk.fragment_size();
            (block.saturating_mul(disk.blocks_available()), block.saturating_mul(disk.blocks()))
        });
        Room { memory_bytes: memory_bytes().unwrap_or(0), disk }
    }
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use quorate_process::Surroundings as _;

    use super::*;

    #[test]
    fn there_is_memory_and_a_disk() {
        let room = Surroundings::new(Path::new("/")).look();
        assert!(room.memory_bytes > 1 << 16, "{room:?}");
        assert!(room.disk.1 > 1 << 16 && room.disk.0 <= room.disk.1, "{room:?}");
        assert_eq!(Surroundings::new(Path::new("/no/such/place")).look().disk, (0, 0));
    }
}
