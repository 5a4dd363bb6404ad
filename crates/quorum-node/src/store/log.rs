//! The file of a log: `header | batch | batch ...`.
//!
//! ```text
//! header  "quorate register log 1\n" padded to 32 | cluster 32 | epoch 4 | server 2 | generation 8 | hash 16
//! batch   len 4 | check 4 | body | hash 16
//! body    object 32 | len 4 | saved, again and again
//! ```
//!
//! Check and hash are the first bytes of BLAKE3 over generation and offset, and the length or the body: what is left of an
//! earlier file is never taken for a batch.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use quorate_quorum::ObjectId;
use quorate_wire::codec::Reader;
use quorate_wire::{ClusterId, ReplicaId};

const TITLE: &[u8; 32] = b"quorate register log 1\n\0\0\0\0\0\0\0\0\0";
const HEADER_BYTES: u64 = 32 + 32 + 4 + 2 + 8 + 16;
/// Bytes around the body of a batch.
const AROUND: u64 = 4 + 4 + 16;
/// No batch is longer: a turn of the server takes at most 64 datagrams or long frames.
const BODY_MAX: usize = 256 << 20;

/// Whose disk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The epoch: a new one begins with nothing.
    pub epoch: u32,
    /// The server.
    pub id: ReplicaId,
}

/// A log that is written.
#[derive(Debug)]
pub(super) struct StoreLog {
    file: File,
    generation: u64,
    bytes: u64,
    frame: Vec<u8>,
}

/// What came of reading a log.
#[derive(Debug)]
pub(super) enum Read {
    /// All that was made durable is there.
    Whole(StoreLog),
    /// It is not, for this reason.
    Damaged(&'static str),
}

fn header(owner: Owner, generation: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(TITLE);
    bytes.extend_from_slice(&owner.cluster.0);
    bytes.extend_from_slice(&owner.epoch.to_le_bytes());
    bytes.extend_from_slice(&owner.id.0.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(&hash.as_bytes()[..16]);
    bytes
}

fn hash(generation: u64, offset: u64, bytes: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&generation.to_le_bytes()).update(&offset.to_le_bytes()).update(bytes);
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default()
}

impl StoreLog {
    /// Creates an empty log.
    pub(super) fn create(path: &Path, owner: Owner, generation: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&header(owner, generation))?;
        Ok(Self { file, generation, bytes: HEADER_BYTES, frame: Vec::new() })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a batch, and makes it durable if `sync`.
    pub(super) fn append(&mut self, body: &[u8], sync: bool) -> io::Result<()> {
        let len = u32::try_from(body.len()).ok().filter(|_| body.len() <= BODY_MAX);
        let len = len.ok_or(ErrorKind::InvalidInput)?.to_le_bytes();
        let (frame, offset) = (&mut self.frame, self.bytes);
        frame.clear();
        frame.extend_from_slice(&len);
        frame.extend_from_slice(&hash(self.generation, offset, &len)[..4]);
        frame.extend_from_slice(body);
        frame.extend_from_slice(&hash(self.generation, offset, body));
        self.file.write_all(frame)?;
        self.bytes += frame.len() as u64;
        if frame.capacity() > 16 << 20 {
            *frame = Vec::new();
        }
        if sync { self.file.sync_data() } else { Ok(()) }
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Reads a log into `objects`, the last of each, and opens it to be continued.
///
/// A batch was written only after the one before was durable. So only the last one can be incomplete, and then nobody was
/// promised what is in it: it is cut off.
pub(super) fn read(
    path: &Path,
    owner: Owner,
    generation: u64,
    objects: &mut BTreeMap<ObjectId, Vec<u8>>,
) -> io::Result<Read> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Read::Damaged("its log is missing")),
        Err(error) => return Err(error),
    };
    // A process that was killed, or whose sync failed, leaves bytes in memory that a power failure takes away (D11). What
    // is read here will be promised: it is made durable first, and what no sync brings to the disk is dropped from memory.
    file.sync_all()?;
    // Best effort: not every file system does it.
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    let end = file.metadata()?.len();
    let mut from = BufReader::with_capacity(1 << 20, &file);
    let mut found = vec![0; usize::try_from(HEADER_BYTES).unwrap_or(0)];
    let is_header = from.read_exact(&mut found).is_ok() && found == header(owner, generation);
    if !is_header {
        return Ok(Read::Damaged("the header of its log is damaged"));
    }
    let mut at = HEADER_BYTES;
    let mut body = Vec::new();
    while at < end {
        match batch(&mut from, generation, (at, end), &mut body)? {
            Batch::Whole => {}
            Batch::Cut => break,
            Batch::Damaged => return Ok(Read::Damaged("its log is damaged")),
        }
        at += AROUND + body.len() as u64;
        if take(&body, objects).is_none() {
            return Ok(Read::Damaged("its log is damaged"));
        }
    }
    drop(from);
    let mut file = file;
    if at < end {
        file.set_len(at)?;
        file.sync_all()?;
    }
    io::Seek::seek(&mut file, io::SeekFrom::Start(at))?;
    Ok(Read::Whole(StoreLog { file, generation, bytes: at, frame: Vec::new() }))
}

enum Batch {
    Whole,
    /// It ends where the file ends, incomplete.
    Cut,
    Damaged,
}

/// Reads the batch at an offset, in a file that ends at another.
fn batch(
    from: &mut impl io::Read,
    generation: u64,
    (at, end): (u64, u64),
    body: &mut Vec<u8>,
) -> io::Result<Batch> {
    let left = end - at;
    if left < 8 {
        return Ok(Batch::Cut);
    }
    let mut head = [0; 8];
    from.read_exact(&mut head)?;
    let (len, check) = head.split_at(4);
    let said = Reader::new(len).u32().unwrap_or(u32::MAX);
    if hash(generation, at, len)[..4] != *check {
        // The file had grown, and no more than a part of this had arrived: zeros up to the end.
        let mut zeros = true;
        let mut piece = [0; 4096];
        while zeros {
            let count = from.read(&mut piece)?;
            if count == 0 {
                return Ok(Batch::Cut);
            }
            zeros = piece.get(..count).is_some_and(|piece| piece.iter().all(|byte| *byte == 0));
        }
        return Ok(Batch::Damaged);
    }
    let len = usize::try_from(said).unwrap_or(usize::MAX);
    let whole = u64::from(said) + AROUND;
    if len > BODY_MAX {
        return Ok(Batch::Damaged);
    }
    if whole > left {
        return Ok(Batch::Cut);
    }
    body.resize(len, 0);
    from.read_exact(body)?;
    let mut found = [0; 16];
    from.read_exact(&mut found)?;
    if found == hash(generation, at, body) {
        return Ok(Batch::Whole);
    }
    Ok(if whole == left { Batch::Cut } else { Batch::Damaged })
}

/// Takes the objects of a batch.
fn take(body: &[u8], objects: &mut BTreeMap<ObjectId, Vec<u8>>) -> Option<()> {
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        let object = ObjectId(reader.array().ok()?);
        objects.insert(object, reader.blob(BODY_MAX).ok()?.to_vec());
    }
    Some(())
}
