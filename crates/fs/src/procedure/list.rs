//! READDIR, READDIRPLUS.
//!
//! Both lists are filled up to a number of encoded bytes. An entry that does not fit ends the list; if not even one
//! fits, the status is TOOSMALL.

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Node, Run, settle};
use crate::caller::READ;
use crate::handle::HANDLE_BYTES;
use crate::nfs3::{Attr, CookieVerf, Outcome, ReadDirArgs, ReadDirPlusArgs, Stat, TRANSFER_BYTES_MAX};
use crate::trouble::Done;
use crate::xdr::{Opaque, Xdr};

/// Cookies never become invalid, so the verifier is not needed.
const COOKIE_VERF: CookieVerf = [0; 8];
/// The bytes of a list's end: no more entry, and whether the directory ends.
const END_BYTES: usize = 8;

/// The requested list.
#[derive(Clone, Copy)]
struct Wanted {
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
    wanted: Wanted,
    /// Bytes of the result other than entries.
    frame: usize,
}

impl Run<'_, '_, '_> {
    pub(crate) fn readdir(&mut self, args: &ReadDirArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let maxcount = usize::try_from(args.count).unwrap_or(usize::MAX);
        let wanted =
            Wanted { cookie: args.cookie, verf: args.verf, dircount: usize::MAX, maxcount, plus: false };
        self.listing(&args.dir, wanted, out)
    }

    pub(crate) fn readdirplus(&mut self, args: &ReadDirPlusArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let wanted = Wanted {
            cookie: args.cookie,
            verf: args.verf,
            dircount: usize::try_from(args.dircount).unwrap_or(usize::MAX),
            maxcount: usize::try_from(args.maxcount).unwrap_or(usize::MAX),
            plus: true,
        };
        self.listing(&args.dir, wanted, out)
    }

    fn listing(&mut self, fh: &Opaque<'_, 64>, wanted: Wanted, out: &mut Vec<u8>) -> Result<(), Stop> {
        let list = self.fill(fh, wanted);
        let attributes = self.post(fh)?;
        match settle(list, || Ok(attributes.clone()))? {
            Ok((list, eof)) => {
                0_u32.encode(out);
                attributes.encode(out);
                COOKIE_VERF.encode(out);
                out.extend_from_slice(&list.bytes);
                false.encode(out);
                eof.encode(out);
            }
            Err(failed) => Outcome::<(), _>::Err(failed).encode(out),
        }
        Ok(())
    }

    /// Builds the list, and returns whether it reaches the end of the directory.
    fn fill(&mut self, fh: &Opaque<'_, 64>, wanted: Wanted) -> Done<(List, bool)> {
        let dir = self.node(fh)?;
        dir.check_dir()?;
        dir.check(READ)?;
        if wanted.cookie != 0 && wanted.verf != COOKIE_VERF {
            return Err(Stat::BadCookie.into());
        }
        self.accessed(&dir)?;
        let attributes: Option<Attr> = Some(self.attr(dir.number, &dir.inode));
        let mut frame = Vec::new();
        attributes.encode(&mut frame);
        let frame = 4 + frame.len() + COOKIE_VERF.len() + END_BYTES;
        let mut list = List { bytes: Vec::new(), names: 0, count: 0, wanted, frame };
        let eof = self.fill_from(&dir, &mut list)?;
        if list.count == 0 && !eof {
            return Err(Stat::TooSmall.into());
        }
        Ok((list, eof))
    }

    fn fill_from(&self, dir: &Node<'_>, list: &mut List) -> Done<bool> {
        let cookie = list.wanted.cookie;
        if cookie < 1 && !self.take(dir, list, 1, dir.number, b".")? {
            return Ok(false);
        }
        if cookie < 2 {
            let parent = self.parent(dir)?;
            if !self.take(dir, list, 2, parent, b"..")? {
                return Ok(false);
            }
        }
        let take = |cookie, number, name: &[u8]| self.take(dir, list, cookie, number, name);
        Ok(self.volume.list(dir.number, cookie.max(2), take)?)
    }

    /// Adds an entry to a list, if it fits.
    fn take(
        &self,
        dir: &Node<'_>,
        list: &mut List,
        cookie: u64,
        number: u64,
        name: &[u8],
    ) -> Result<bool, Stop> {
        let before = list.bytes.len();
        true.encode(&mut list.bytes);
        number.encode(&mut list.bytes);
        Opaque::<255>(name).encode(&mut list.bytes);
        cookie.encode(&mut list.bytes);
        let names = list.names + list.bytes.len() - before;
        if list.wanted.plus && names <= list.wanted.dircount {
            let inode = self.volume.known_inode(number)?;
            Some(self.attr(number, &inode)).encode(&mut list.bytes);
            let handle: [u8; HANDLE_BYTES] = self.handle(dir, number, &inode);
            Some(Opaque::<64>(&handle)).encode(&mut list.bytes);
        }
        let max = list.wanted.maxcount.min(TRANSFER_BYTES_MAX);
        if names > list.wanted.dircount || list.frame + list.bytes.len() > max {
            list.bytes.truncate(before);
            return Ok(false);
        }
        list.names = names;
        list.count += 1;
        Ok(true)
    }
}
