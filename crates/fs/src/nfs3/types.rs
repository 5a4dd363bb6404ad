//! The values that several procedures share.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, xdr_enum, xdr_struct};

/// The program's number.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// Maximum length of a handle, in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;
/// Maximum length of a decoded name or path, in bytes. It is above the accepted length, so that a longer name gets
/// NAMETOOLONG, not `GARBAGE_ARGS`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Maximum size of a READ or WRITE, in bytes.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// A handle: opaque bytes for the client.
pub type Fh<'a> = Opaque<'a, HANDLE_BYTES_MAX>;
/// A name, or the target of a symbolic link.
pub type Name<'a> = Opaque<'a, NAME_BYTES_MAX>;
/// The verifier of a directory's cookies.
pub type CookieVerf = [u8; 8];
/// The verifier of an exclusive creation.
pub type CreateVerf = [u8; 8];
/// The write verifier.
pub type WriteVerf = [u8; 8];

xdr_enum! {
    /// How an operation failed.
    pub enum Stat {
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        NxIo = 6,
        Access = 13,
        Exist = 17,
        XDev = 18,
        NoDev = 19,
        NotDir = 20,
        IsDir = 21,
        Inval = 22,
        FBig = 27,
        NoSpc = 28,
        RoFs = 30,
        MLink = 31,
        NameTooLong = 63,
        NotEmpty = 66,
        DQuot = 69,
        Stale = 70,
        Remote = 71,
        BadHandle = 10001,
        NotSync = 10002,
        BadCookie = 10003,
        NotSupp = 10004,
        TooSmall = 10005,
        ServerFault = 10006,
        BadType = 10007,
        Jukebox = 10008,
    }

    /// The type of an inode.
    pub enum FileType {
        Reg = 1,
        Dir = 2,
        Blk = 3,
        Chr = 4,
        Lnk = 5,
        Sock = 6,
        Fifo = 7,
    }

    /// The durability of written data: requested, or reached.
    pub enum StableHow {
        Unstable = 0,
        DataSync = 1,
        FileSync = 2,
    }
}

xdr_struct! {
    /// A time: seconds since 1970 and nanoseconds.
    #[derive(Copy, Default)]
    pub struct NfsTime {
        pub seconds: u32,
        pub nseconds: u32,
    }

    /// The numbers of a device.
    #[derive(Copy, Default)]
    pub struct SpecData {
        pub major: u32,
        pub minor: u32,
    }

    /// All attributes.
    pub struct Attr {
        pub kind: FileType,
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub size: u64,
        pub used: u64,
        pub rdev: SpecData,
        pub fsid: u64,
        pub fileid: u64,
        pub atime: NfsTime,
        pub mtime: NfsTime,
        pub ctime: NfsTime,
    }

    /// The attributes that a client compares with those it knows.
    #[derive(Copy)]
    pub struct WccAttr {
        pub size: u64,
        pub mtime: NfsTime,
        pub ctime: NfsTime,
    }

    /// Attributes before and after an operation.
    #[derive(Default)]
    pub struct Wcc {
        pub before: Option<WccAttr>,
        pub after: Option<Attr>,
    }

    /// The attributes to set.
    #[derive(Default)]
    pub struct SetAttr {
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub size: Option<u64>,
        pub atime: SetTime,
        pub mtime: SetTime,
    }

    /// A name in a directory.
    pub struct DirOp<'a> {
        pub dir: Fh<'a>,
        pub name: Name<'a>,
    }
}

/// The result of a procedure: `T`, or a status and `F`.
pub type NfsResult<T, F> = Result<T, (Stat, F)>;

const OK: u32 = 0;

impl<'a, T: Xdr<'a>, F: Xdr<'a>> Xdr<'a> for NfsResult<T, F> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        match r.u32()? {
            OK => T::decode(r).map(Ok),
            number => {
                let stat = Stat::from_number(number).ok_or(XdrError::Invalid)?;
                Ok(Err((stat, F::decode(r)?)))
            }
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ok(done) => {
                OK.encode(out);
                done.encode(out);
            }
            Err((stat, failed)) => {
                stat.encode(out);
                failed.encode(out);
            }
        }
    }
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    #[default]
    Keep,
    /// The server's time.
    Server,
    Client(NfsTime),
}

impl Xdr<'_> for SetTime {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        match r.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Server),
            2 => Ok(Self::Client(NfsTime::decode(r)?)),
            _ => Err(XdrError::Invalid),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Keep => 0_u32.encode(out),
            Self::Server => 1_u32.encode(out),
            Self::Client(time) => {
                2_u32.encode(out);
                time.encode(out);
            }
        }
    }
}

impl NfsTime {
    /// Converts nanoseconds since 1970 to the wire's format. The wire has 32 bits for the seconds: higher bits are
    /// lost.
    pub fn of(ns: u64) -> Self {
        let [.., a, b, c, d] = (ns / 1_000_000_000).to_be_bytes();
        let nseconds = u32::try_from(ns % 1_000_000_000).unwrap_or(0);
        Self { seconds: u32::from_be_bytes([a, b, c, d]), nseconds }
    }

    /// Returns nanoseconds since 1970; none if the nanoseconds exceed a second.
    pub fn ns(self) -> Option<u64> {
        let rest = u64::from(self.nseconds);
        (rest < 1_000_000_000).then(|| u64::from(self.seconds) * 1_000_000_000 + rest)
    }
}
