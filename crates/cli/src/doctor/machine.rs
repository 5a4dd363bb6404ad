//! This machine: its disk, its clock, its sockets.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::statvfs::statvfs;

use super::finding::{Finding, Grade};

/// The size that a socket requests, in bytes, and the size below which a warning is given.
const BUFFER_BYTES: u64 = 4 << 20;
const BUFFER_LITTLE: u64 = 1 << 20;
/// Free space on the disk, in bytes: below the first it is bad, below the second a warning.
const ROOM_BAD: u64 = 256 << 20;
const ROOM_LITTLE: u64 = 2 << 30;
/// How many writes are timed, and when their median is slow.
const WRITES: usize = 16;
const WRITE_SLOW: Duration = Duration::from_millis(20);
/// A time before this program's build: 2026-01-01, in seconds since 1970.
const WRITTEN: u64 = 1_767_225_600;

pub(super) fn look(dir: &Path) -> Vec<Finding> {
    vec![writes(dir), clock(), buffers()]
}

/// The room where a node has its log and its state, which may be on a disk of its own.
pub(super) fn room(dir: &Path, name: &str) -> Finding {
    let places = [dir.join("log"), dir.join("checkpoint"), dir.to_path_buf()];
    let found = places.iter().filter_map(|place| statvfs(place).ok());
    let Some(found) = found.min_by_key(|found| found.blocks_available() * found.fragment_size()) else {
        return Finding::new(Grade::Bad, "disk", name, "its size cannot be seen");
    };
    let block = found.fragment_size();
    let (free, all) = (found.blocks_available() * block, found.blocks() * block);
    let what = format!("{} MiB free of {} MiB", free >> 20, all >> 20);
    let next =
        "make room: a replica that cannot write promises nothing, and its cluster bears one fault less";
    match free {
        ..ROOM_BAD => Finding::new(Grade::Bad, "disk", name, what).next(next),
        ROOM_BAD..ROOM_LITTLE => Finding::new(Grade::Warn, "disk", name, what).next(next),
        _ => Finding::new(Grade::Ok, "disk", name, what),
    }
}

/// Times small synchronous writes, as a replica makes them before it answers.
fn writes(dir: &Path) -> Finding {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let measured = measure(&path);
    let _ = fs::remove_file(&path);
    let mut took = match measured {
        Ok(took) => took,
        Err(error) => {
            return Finding::new(Grade::Bad, "disk", "writing", format!("cannot write: {error}"))
                .next(format!("give this user write permission in {}", dir.display()));
        }
    };
    took.sort_unstable();
    let ms = |at: usize| took.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let what = format!("fsync of 4 KiB takes {:.2} ms, at most {:.2} ms", ms(WRITES / 2), ms(WRITES - 1));
    if took.get(WRITES / 2).is_some_and(|median| *median > WRITE_SLOW) {
        let next =
            "every operation waits for it: use a faster disk, or durability = \"async\" for measurements";
        return Finding::new(Grade::Warn, "disk", "writing", what).next(next);
    }
    Finding::new(Grade::Ok, "disk", "writing", what)
}

fn measure(path: &Path) -> std::io::Result<Vec<Duration>> {
    let mut file = File::create_new(path)?;
    let block = [0x5a; 4096];
    let mut took = Vec::new();
    for _ in 0..WRITES {
        let begin = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        took.push(begin.elapsed());
    }
    Ok(took)
}

fn clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let next = "set the clock, and keep it synchronised (chrony, ntpd)";
    if now < WRITTEN {
        return Finding::new(
            Grade::Bad,
            "clock",
            "machine",
            "clock is earlier than this program's build date",
        )
        .next(next);
    }
    Finding::new(Grade::Ok, "clock", "machine", "clock is later than this program's build date")
}

fn buffers() -> Finding {
    let path = "/proc/sys/net/core/rmem_max";
    let found = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Some(found) = found else {
        return Finding::new(Grade::Warn, "sockets", "machine", format!("cannot read {path}"));
    };
    let what = format!("receive buffers of up to {} KiB (net.core.rmem_max)", found >> 10);
    if found < BUFFER_LITTLE {
        let next = format!(
            "sudo sysctl -w net.core.rmem_max={BUFFER_BYTES}      small buffers lose datagrams under load"
        );
        return Finding::new(Grade::Warn, "sockets", "machine", what).next(next);
    }
    Finding::new(Grade::Ok, "sockets", "machine", what)
}
