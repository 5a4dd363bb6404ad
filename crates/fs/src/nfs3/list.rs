//! READDIR, READDIRPLUS.
//!
//! Both lists are filled up to a number of encoded bytes. An entry that does not fit ends the list; if not even one
//! fits, the status is TOOSMALL.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, CookieVerf, Face, Fh, Name, NfsResult, TRANSFER_BYTES_MAX, settle};
use crate::error::{Done, Why};
use crate::op::list::Listed;
use crate::rpc::xdr::{Opaque, Xdr, xdr_struct};

xdr_struct! {
    pub struct ReadDirArgs<'a> {
        pub dir: Fh<'a>,
        pub cookie: u64,
        pub verf: CookieVerf,
        pub count: u32,
    }

    pub struct ReadDirPlusArgs<'a> {
        pub dir: Fh<'a>,
        pub cookie: u64,
        pub verf: CookieVerf,
        pub dircount: u32,
        pub maxcount: u32,
    }

    pub struct ListEntry<'a> {
        pub fileid: u64,
        pub name: Name<'a>,
        pub cookie: u64,
    }

    pub struct ReadDirOk<'a> {
        pub dir: Option<Attr>,
        pub verf: CookieVerf,
        pub entries: Vec<ListEntry<'a>>,
        pub eof: bool,
    }

    pub struct EntryPlus<'a> {
        pub fileid: u64,
        pub name: Name<'a>,
        pub cookie: u64,
        pub attributes: Option<Attr>,
        pub object: Option<Fh<'a>>,
    }

    pub struct ReadDirPlusOk<'a> {
        pub dir: Option<Attr>,
        pub verf: CookieVerf,
        pub entries: Vec<EntryPlus<'a>>,
        pub eof: bool,
    }
}

/// Cookies never become invalid, so the verifier is not needed.
const COOKIE_VERF: CookieVerf = [0; 8];
/// The bytes of the attributes of the directory, and of whether there are any.
const ATTR_BYTES: usize = 4 + 84;
/// The bytes of a list's end: no more entry, and whether the directory ends.
const END_BYTES: usize = 8;
/// Bytes of the result other than entries, with the status.
const FRAME_BYTES: usize = 4 + ATTR_BYTES + COOKIE_VERF.len() + END_BYTES;

/// The requested list.
#[derive(Clone, Copy)]
struct ListRequest {
    cookie: u64,
    verf: CookieVerf,
    /// Maximum bytes of numbers and names, without attributes and handles.
    dircount: usize,
    /// Maximum size of the result, in bytes.
    maxcount: usize,
    plus: bool,
}

/// A list under construction.
struct List {
    bytes: Vec<u8>,
    /// Bytes of numbers and names.
    names: usize,
    count: usize,
    wanted: ListRequest,
}

impl Face<'_, '_, '_> {
    pub(super) fn readdir(&mut self, args: &ReadDirArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let maxcount = usize::try_from(args.count).unwrap_or(usize::MAX);
        let wanted =
            ListRequest { cookie: args.cookie, verf: args.verf, dircount: usize::MAX, maxcount, plus: false };
        self.listing(&args.dir, wanted, out)
    }

    pub(super) fn readdirplus(&mut self, args: &ReadDirPlusArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let wanted = ListRequest {
            cookie: args.cookie,
            verf: args.verf,
            dircount: usize::try_from(args.dircount).unwrap_or(usize::MAX),
            maxcount: usize::try_from(args.maxcount).unwrap_or(usize::MAX),
            plus: true,
        };
        self.listing(&args.dir, wanted, out)
    }

    fn listing(&mut self, fh: &Fh<'_>, wanted: ListRequest, out: &mut Vec<u8>) -> Result<(), Stop> {
        let list = self.fill(fh, wanted);
        let attributes = self.post(fh)?;
        match settle(list, || Ok(attributes.clone()))? {
            Ok((bytes, eof)) => {
                0_u32.encode(out);
                attributes.encode(out);
                COOKIE_VERF.encode(out);
                out.extend_from_slice(&bytes);
                false.encode(out);
                eof.encode(out);
            }
            Err(failed) => NfsResult::<(), _>::Err(failed).encode(out),
        }
        Ok(())
    }

    /// Builds the list, and returns whether it reaches the end of the directory.
    fn fill(&mut self, fh: &Fh<'_>, wanted: ListRequest) -> Done<(Vec<u8>, bool)> {
        let mut list = List { bytes: Vec::new(), names: 0, count: 0, wanted };
        let is_known = wanted.cookie == 0 || wanted.verf == COOKIE_VERF;
        let eof = self.op.list(fh.0, wanted.cookie, is_known, &mut |entry| list.take(entry))?;
        if list.count == 0 && !eof {
            return Err(Why::TooSmall.into());
        }
        Ok((list.bytes, eof))
    }
}

impl List {
    /// Adds an entry, if it fits.
    fn take(&mut self, entry: &Listed<'_>) -> Result<bool, Stop> {
        let before = self.bytes.len();
        true.encode(&mut self.bytes);
        entry.number.encode(&mut self.bytes);
        Opaque::<255>(entry.name).encode(&mut self.bytes);
        entry.cookie.encode(&mut self.bytes);
        let names = self.names + self.bytes.len() - before;
        if self.wanted.plus && names <= self.wanted.dircount {
            let (handle, attributes) = entry.about()?;
            Some(Attr::from(&attributes)).encode(&mut self.bytes);
            Some(Opaque::<64>(&handle)).encode(&mut self.bytes);
        }
        let max = self.wanted.maxcount.min(TRANSFER_BYTES_MAX);
        if names > self.wanted.dircount || FRAME_BYTES + self.bytes.len() > max {
            self.bytes.truncate(before);
            return Ok(false);
        }
        self.names = names;
        self.count += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::xdr::encode;
    use crate::types::FileKind;
    use crate::volume::inode::Inode;

    #[test]
    fn attributes_have_the_length_that_lists_reckon_with() {
        let attributes = Inode::empty(FileKind::Dir).attributes(1, 2, 4096);
        assert_eq!(encode(&Some(Attr::from(&attributes))).len(), ATTR_BYTES);
    }
}
