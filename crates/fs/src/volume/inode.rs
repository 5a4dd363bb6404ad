//! Inodes: attributes, and the data of small files next to them.
//!
//! ```text
//! 0 kind 1 | 1 flags 1 | 2 mode 2 | 4 links 4 | 8 user 4 | 12 group 4 | 16 size 8 | 24 atime 8 | 32 mtime 8
//! | 40 ctime 8 | 48 pages 4 | 52 generation 4 | 56 a 8 | 64 b 8 | 72 c 8 | 80 first bytes of the data
//!
//!               a                 b                     c
//! directory     parent            next cookie           entries
//! device        major 4, minor 4
//! file                            exclusive verifier
//! ```
//!
//! Times are nanoseconds since 1970, in 64 bits. The parts of a file without inline bytes or pages are holes. Once a file
//! has a page it has no inline bytes.

use quorate_service::Stop;

use crate::types::{Attributes, Device, FileKind};
use crate::volume::bytes::{le32, le64};

/// Bytes before the data.
pub(crate) const HEAD_BYTES: usize = 80;
/// Maximum size of inline data in an inode, in bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 512;
/// Flag: the file was created exclusively, and the verifier is set.
const EXCLUSIVE: u8 = 1;

/// An inode's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) atime: u64,
    pub(crate) mtime: u64,
    pub(crate) ctime: u64,
    /// Number of data pages.
    pub(crate) pages: u32,
    pub(crate) generation: u32,
    /// For a device.
    pub(crate) device: Device,
    /// For a directory: its parent.
    pub(crate) parent: u64,
    /// For a directory: how many cookies have been used, [`Inode::COOKIES_BEFORE`] at first.
    pub(crate) next_cookie: u64,
    /// For a directory: the number of its entries, without `.` and `..`.
    pub(crate) entries: u64,
    /// For a file that was created exclusively.
    pub(crate) verf: Option<[u8; 8]>,
    /// Bytes of inline data. For information; not part of the attributes.
    pub(crate) inline_len: usize,
}

impl Inode {
    /// Cookies 1 and 2 are those of "." and "..".
    pub(crate) const COOKIES_BEFORE: u64 = 3;

    pub(crate) fn empty(kind: FileKind) -> Self {
        Self {
            kind,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            pages: 0,
            generation: 0,
            device: Device::default(),
            parent: 0,
            next_cookie: Self::COOKIES_BEFORE,
            entries: 0,
            verf: None,
            inline_len: 0,
        }
    }

    /// Returns how many names it has beyond its first one. A directory never has any.
    pub(crate) fn links(&self) -> u32 {
        if self.is_dir() { 0 } else { self.nlink.saturating_sub(1) }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    /// Returns the inode in the value of its tree.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Stop> {
        let kind = value.first().and_then(|kind| FileKind::from_number(*kind));
        let mut inode = Self::empty(kind.ok_or(Stop::Corrupt)?);
        let [a, b] = *value.get(2..).and_then(<[u8]>::first_chunk).ok_or(Stop::Corrupt)?;
        inode.mode = u16::from_le_bytes([a, b]);
        inode.nlink = le32(value, 4)?;
        (inode.uid, inode.gid) = (le32(value, 8)?, le32(value, 12)?);
        inode.size = le64(value, 16)?;
        (inode.atime, inode.mtime, inode.ctime) = (le64(value, 24)?, le64(value, 32)?, le64(value, 40)?);
        (inode.pages, inode.generation) = (le32(value, 48)?, le32(value, 52)?);
        match inode.kind {
            FileKind::Dir => {
                (inode.parent, inode.next_cookie) = (le64(value, 56)?, le64(value, 64)?);
                inode.entries = le64(value, 72)?;
            }
            FileKind::Blk | FileKind::Chr => {
                inode.device = Device { major: le32(value, 56)?, minor: le32(value, 60)? };
            }
            FileKind::Reg | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                let is_exclusive = value.get(1).is_some_and(|flags| flags & EXCLUSIVE != 0);
                inode.verf = is_exclusive.then(|| le64(value, 64)).transpose()?.map(u64::to_le_bytes);
            }
        }
        inode.inline_len = value.len().checked_sub(HEAD_BYTES).ok_or(Stop::Corrupt)?;
        Ok(inode)
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &[self.kind.number()]);
        put(2, &self.mode.to_le_bytes());
        put(4, &self.nlink.to_le_bytes());
        put(8, &self.uid.to_le_bytes());
        put(12, &self.gid.to_le_bytes());
        put(16, &self.size.to_le_bytes());
        put(24, &self.atime.to_le_bytes());
        put(32, &self.mtime.to_le_bytes());
        put(40, &self.ctime.to_le_bytes());
        put(48, &self.pages.to_le_bytes());
        put(52, &self.generation.to_le_bytes());
        match self.kind {
            FileKind::Dir => {
                put(56, &self.parent.to_le_bytes());
                put(64, &self.next_cookie.to_le_bytes());
                put(72, &self.entries.to_le_bytes());
            }
            FileKind::Blk | FileKind::Chr => {
                put(56, &self.device.major.to_le_bytes());
                put(60, &self.device.minor.to_le_bytes());
            }
            FileKind::Reg | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                if let Some(verf) = self.verf {
                    put(1, &[EXCLUSIVE]);
                    put(64, &verf);
                }
            }
        }
        bytes
    }

    /// Returns all attributes.
    pub(crate) fn attributes(&self, number: u64, volume: u64, page_bytes: u64) -> Attributes {
        let inline = u64::try_from(self.inline_len.next_multiple_of(512)).unwrap_or(0);
        Attributes {
            kind: self.kind,
            mode: self.mode,
            links: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size: self.shown_size(page_bytes),
            // A small file uses space too; otherwise archivers take it for a hole.
            used: u64::from(self.pages) * page_bytes + inline,
            device: self.device,
            volume,
            number,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// The reported size of a directory: one page for every 64 entries, rounded up.
    fn shown_size(&self, page_bytes: u64) -> u64 {
        if self.is_dir() { (self.entries / 64 + 1).saturating_mul(page_bytes) } else { self.size }
    }
}
