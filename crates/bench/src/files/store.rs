//! The store of a replica: a process with one disk, which writes each record to the disk before it answers [CBASE04 §6.2.2].
//!
//! ```text
//! record:  length 4 | bytes        answer: 1 byte, when the record is on the disk
//! ```
//!
//! It stands for a machine that a file server mounts its disk from. A store has one disk: it writes one record after
//! the other, whatever the number of connections. Nothing reads the records.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::processes;

/// The role of such a process: see [`crate::child`].
pub(crate) const ROLE: &str = "store";
/// The file of records is written again from its start after this number of bytes.
const FILE_BYTES: u64 = 16 << 20;
/// Maximum length of a record.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// The answer to a record.
const DONE: [u8; 1] = [1];

/// The disk of a store.
struct Disk {
    file: File,
    at: u64,
    /// How long a record takes at least: the speed of an older disk.
    pace: Duration,
}

impl Disk {
    fn write(&mut self, record: &[u8]) -> Result<()> {
        let start = Instant::now();
        let len = u64::try_from(record.len())?;
        if self.at + len > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(record, self.at)?;
        self.at += len;
        self.file.sync_data()?;
        std::thread::sleep(self.pace.saturating_sub(start.elapsed()));
        Ok(())
    }
}

/// Runs a store whose file is at `path`, until the experiment ends. It says its address, and for each line how long its
/// disk has been busy, in nanoseconds.
pub(crate) fn run(path: &str, pace_us: &str) -> Result<()> {
    processes::settle()?;
    let pace = Duration::from_micros(pace_us.parse()?);
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    file.set_len(FILE_BYTES)?;
    let listener = TcpListener::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    let lines = processes::ready()?;
    processes::say(&listener.local_addr()?.to_string())?;
    let disk: &Mutex<Disk> = Box::leak(Box::new(Mutex::new(Disk { file, at: 0, pace })));
    let busy_ns: &AtomicU64 = Box::leak(Box::default());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection ends with its replica.
            std::thread::spawn(move || drop(keep(stream, disk, busy_ns)));
        }
    });
    for line in lines {
        let _ = line?;
        processes::say(&busy_ns.load(Ordering::Relaxed).to_string())?;
    }
    Ok(())
}

/// Writes the records of a connection.
fn keep(mut stream: TcpStream, disk: &Mutex<Disk>, busy_ns: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut record = Vec::new();
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let len = usize::try_from(u32::from_be_bytes(head))?;
        ensure!(len <= RECORD_BYTES_MAX, "a record of {len} bytes");
        record.resize(len, 0);
        stream.read_exact(&mut record)?;
        {
            let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
            let start = Instant::now();
            disk.write(&record)?;
            busy_ns.fetch_add(u64::try_from(start.elapsed().as_nanos())?, Ordering::Relaxed);
        }
        stream.write_all(&DONE)?;
    }
}

/// A replica's connections to its store: as many as records are written at the same time.
#[derive(Debug)]
pub(super) struct Store {
    address: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
}

impl Store {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Writes a record, and returns when it is on the disk of the store.
    pub(super) fn write(&self, record: &[u8]) -> Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connect = || {
            let stream = TcpStream::connect(self.address).context("the store is gone")?;
            stream.set_nodelay(true)?;
            anyhow::Ok(stream)
        };
        let mut stream = idle.map_or_else(connect, Ok)?;
        let mut message = u32::try_from(record.len())?.to_be_bytes().to_vec();
        message.extend_from_slice(record);
        stream.write_all(&message)?;
        stream.read_exact(&mut [0; DONE.len()])?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(())
    }
}
