//! The file systems in which the calls of the corpus are made.

use quorate_fs::Settings;
use quorate_fs::nfs3::operation::mapped;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::Opaque;
use quorate_fs::settings::{Export, Network, Quota, Squash};

use crate::support::{Bench, H, fh, mode, open_settings, place};

/// The address of the machine that the networks of every export admit.
const NEAR: [u8; 4] = [10, 0, 0, 1];
/// The address of another one.
const FAR: [u8; 4] = [11, 0, 0, 1];

/// How much space the file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// More than the calls need.
    Enough,
    /// No page is free.
    Full,
    /// Few links, inodes and bytes, for users and in all.
    Few,
}

/// The user that calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) gids: &'static [u32],
}

pub(crate) const USERS: [User; 4] = [
    User { name: "root", uid: 0, gid: 0, gids: &[] },
    User { name: "owner", uid: 10, gid: 20, gids: &[] },
    User { name: "member", uid: 12, gid: 12, gids: &[7, 20] },
    User { name: "other", uid: 11, gid: 21, gids: &[] },
];

/// Handles with their names in `World::new`.
pub(crate) type Handles = [(&'static str, H)];

/// A file system, with the handles and names that the calls are made with.
pub(crate) struct World {
    pub(crate) bench: Bench,
    pub(crate) handles: Vec<(&'static str, H)>,
}

/// Existing and new names, and such as nothing can have.
pub(crate) fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> =
        ["f", "d", "empty", "l", "new", "a", "", ".", "..", "a/b", "a\0"].map(Vec::from).to_vec();
    names.push(vec![b'n'; 255]);
    names.push(vec![b'n'; 256]);
    names
}

pub(crate) fn settings(space: Space) -> Settings {
    let network = |address: [u8; 4]| vec![Network { address: mapped(address), bits: 128 }];
    let exports = vec![
        Export { squash: Squash::Nobody, ..Export::of("/") },
        Export { read_only: true, squash: Squash::Nobody, ..Export::of("/ro") },
        Export { networks: network(FAR), ..Export::of("/far") },
        Export { networks: network(NEAR), ..Export::of("/squashed") },
        Export { squash: Squash::Everyone, anonymous_uid: 10, anonymous_gid: 20, ..Export::of("/all") },
    ];
    let settings = Settings { exports, ..open_settings() };
    match space {
        Space::Enough | Space::Full => settings,
        Space::Few => Settings {
            links_max: 9,
            file_bytes_max: 1 << 20,
            // User 10 has four inodes and six links.
            quota: Quota { bytes_max: 3 * 4096, inodes_max: 11 },
            inodes_max: 26,
            ..settings
        },
    }
}

impl World {
    /// Returns a file system with a file of each kind, some of them owned by user 10.
    pub(crate) fn new(space: Space) -> Self {
        let pages = if space == Space::Full { 400 } else { 1 << 12 };
        let mut b = Bench::with(settings(space), pages);
        let root = b.root.clone();
        for (name, permissions) in
            [("ro", 0o755), ("far", 0o755), ("squashed", 0o777), ("all", 0o777), ("t", 0o1777)]
        {
            b.mkdir(&root, name, permissions).unwrap();
        }
        let dir = b.mkdir(&root, "d", 0o755).unwrap();
        let empty = b.mkdir(&root, "empty", 0o2777).unwrap();
        let file = b.file(&root, "f");
        b.write(&file, 0, &[7; 5000]).unwrap();
        let small = b.create(&dir, "a", CreateHow::Exclusive(*b"verifier")).unwrap();
        b.write(&small, 3, b"small").unwrap();
        b.setattr(&small, mode(0o6755)).unwrap();
        b.mkdir(&dir, "sub", 0o700).unwrap();
        let link = b.symlink(&root, "l", b"f").unwrap();
        let pipe = b.mknod(&root, "p", MkNodData::Pipe(FileType::Fifo, mode(0o666))).unwrap();
        let numbers = SpecData { major: 4, minor: 5 };
        let device = b.mknod(&root, "c", MkNodData::Device(FileType::Chr, mode(0o600), numbers)).unwrap();
        for owned in [&dir, &file, &small, &link] {
            let owner = SetAttr { uid: Some(10), gid: Some(20), ..SetAttr::default() };
            b.setattr(owned, owner).unwrap();
        }
        b.setattr(&small, mode(0o6755)).unwrap();
        let sticky = b.lookup(&root, "t").unwrap();
        let _ = b.file(&sticky, "a");
        let gone = b.file(&root, "gone");
        b.remove(&root, "gone").unwrap();
        for count in 0..6 {
            b.link(&file, &sticky, &format!("h{count}")).unwrap();
        }
        let frozen = b.mount("/ro").unwrap();
        let inside = b.lookup(&root, "ro").unwrap();
        b.file(&inside, "a");
        let frozen_file = b.lookup(&frozen, "a").unwrap();
        b.address = mapped(FAR);
        let far = b.mount("/far").unwrap();
        b.address = mapped(NEAR);
        let squashed = b.mount("/squashed").unwrap();
        let all = b.mount("/all").unwrap();
        if space == Space::Full {
            let large = b.file(&root, "fill");
            let mut offset = 0;
            while let Ok(written) = b.write(&large, offset, &[9; 1 << 14]) {
                offset += u64::from(written.count);
            }
            assert!(offset > 1 << 18, "the disk took {offset} bytes");
        }
        let mut unknown = root.clone();
        unknown[23] = 99;
        let handles = vec![
            ("root", root),
            ("f", file),
            ("d", dir),
            ("empty", empty),
            ("small", small),
            ("link", link),
            ("pipe", pipe),
            ("device", device),
            ("sticky", sticky),
            ("gone", gone),
            ("frozen", frozen),
            ("frozen file", frozen_file),
            ("far", far),
            ("squashed", squashed),
            ("all", all),
            ("unknown export", unknown),
            ("nothing", vec![0; 24]),
            ("short", vec![1; 5]),
            ("long", vec![0xff; 64]),
            ("none", Vec::new()),
        ];
        b.assert_clean();
        Self { bench: b, handles }
    }

    /// Lets a user call.
    pub(crate) fn become_user(&mut self, user: User) {
        self.bench.become_user(user.uid, user.gid);
        self.bench.gids = user.gids.to_vec();
    }
}

/// Attributes to set, of each kind.
fn sets() -> Vec<SetAttr> {
    let time = |nseconds| SetTime::Client(NfsTime { seconds: 5, nseconds });
    vec![
        SetAttr::default(),
        mode(0o6711),
        SetAttr { size: Some(3), ..SetAttr::default() },
        SetAttr { size: Some(9000), ..SetAttr::default() },
        SetAttr { size: Some(1 << 45), ..SetAttr::default() },
        SetAttr { uid: Some(10), gid: Some(20), ..SetAttr::default() },
        SetAttr { uid: Some(11), ..SetAttr::default() },
        SetAttr { gid: Some(7), mode: Some(0o2755), ..SetAttr::default() },
        SetAttr { atime: SetTime::Server, mtime: time(6), ..SetAttr::default() },
        SetAttr { mtime: SetTime::Server, ..SetAttr::default() },
        SetAttr { atime: time(1_000_000_000), ..SetAttr::default() },
    ]
}

/// Targets of symbolic links.
fn targets() -> Vec<&'static [u8]> {
    static LONG: [u8; 4096] = [b't'; 4096];
    vec![b"d/a", b"", b"zero\0", &LONG[..600], &LONG[..4095], &LONG]
}

/// The calls of each procedure, with every handle and name.
#[allow(clippy::too_many_lines, reason = "one arm for each procedure")]
pub(crate) fn calls<'a>(procedure: Procedure, files: &'a Handles, names: &'a [Vec<u8>]) -> Vec<Call<'a>> {
    static DATA: [u8; 9000] = [5; 9000];
    static LONG: [u8; 256] = [b'n'; 256];
    let all = || files.iter().map(|(_, handle)| fh(handle));
    let some = |wanted: &'static [&'static str]| {
        files.iter().filter(|(name, _)| wanted.contains(name)).map(|(_, handle)| fh(handle))
    };
    let places = || all().flat_map(|dir| names.iter().map(move |name| DirOp { dir, name: Opaque(name) }));
    match procedure {
        Procedure::Null => vec![Call::Null(())],
        Procedure::GetAttr => all().map(Call::GetAttr).collect(),
        Procedure::SetAttr => {
            let guards = [None, Some(NfsTime { seconds: 1, nseconds: 1 })];
            let args = |object, attributes: SetAttr, guard| SetAttrArgs { object, attributes, guard };
            let sets = sets().into_iter().flat_map(|set| guards.map(|guard| (set.clone(), guard)));
            sets.flat_map(|(set, guard)| all().map(move |fh| Call::SetAttr(args(fh, set.clone(), guard))))
                .collect()
        }
        Procedure::Lookup => places().map(Call::Lookup).collect(),
        Procedure::Access => all()
            .flat_map(|object| [0x3f, 0x15].map(|access| AccessArgs { object, access }))
            .map(Call::Access)
            .collect(),
        Procedure::ReadLink => all().map(Call::ReadLink).collect(),
        Procedure::Read => {
            let ranges = [(0, 0), (0, 10), (0, 6000), (4090, 20), (4999, 1), (5000, 1), (u64::MAX, 9)];
            all()
                .flat_map(|file| ranges.map(|(offset, count)| ReadArgs { file, offset, count }))
                .map(Call::Read)
                .collect()
        }
        Procedure::Write => {
            let ranges = [
                (0, 0, 0),
                (0, 3, 3),
                (0, 3, 2),
                (100, 9000, 9000),
                (1 << 20, 9, 9),
                (1 << 44, 1, 1),
                (0, 2, 3),
            ];
            let stable = StableHow::ALL.iter().copied().cycle();
            all()
                .flat_map(|file| ranges.map(|range| (file, range)))
                .zip(stable)
                .map(|((file, (offset, len, count)), stable)| {
                    Call::Write(WriteArgs { file, offset, count, stable, data: Opaque(&DATA[..len]) })
                })
                .collect()
        }
        Procedure::Create => {
            let hows = [
                CreateHow::Unchecked(mode(0o644)),
                CreateHow::Unchecked(SetAttr { size: Some(2), ..SetAttr::default() }),
                CreateHow::Guarded(SetAttr { mode: Some(0o600), size: Some(1 << 45), ..SetAttr::default() }),
                CreateHow::Exclusive(*b"verifier"),
                CreateHow::Exclusive(*b"other  8"),
                CreateHow::Guarded(SetAttr { uid: Some(12), ..SetAttr::default() }),
            ];
            places()
                .zip(hows.into_iter().cycle())
                .map(|(place, how)| Call::Create(CreateArgs { place, how }))
                .collect()
        }
        Procedure::MkDir => {
            let sets = sets().into_iter().cycle();
            places()
                .zip(sets)
                .map(|(place, attributes)| Call::MkDir(MkDirArgs { place, attributes }))
                .collect()
        }
        Procedure::SymLink => {
            let what = targets().into_iter().cycle().zip(sets().into_iter().cycle());
            places()
                .zip(what)
                .map(|(place, (target, attributes))| {
                    Call::SymLink(SymLinkArgs { place, attributes, target: Opaque(target) })
                })
                .collect()
        }
        Procedure::MkNod => {
            let numbers = SpecData { major: 1, minor: 2 };
            let kinds = FileType::ALL.iter().map(|kind| match kind {
                FileType::Chr | FileType::Blk => MkNodData::Device(*kind, mode(0o640), numbers),
                FileType::Sock | FileType::Fifo => MkNodData::Pipe(*kind, mode(0o640)),
                FileType::Reg | FileType::Dir | FileType::Lnk => MkNodData::Other(*kind),
            });
            places()
                .zip(kinds.cycle().skip(2))
                .map(|(place, what)| Call::MkNod(MkNodArgs { place, what }))
                .collect()
        }
        Procedure::Remove => places().map(Call::Remove).collect(),
        Procedure::RmDir => places().map(Call::RmDir).collect(),
        Procedure::Rename => {
            let place = |(dir, name)| DirOp { dir, name: Opaque(name) };
            let from = some(&["root", "d", "sticky", "f", "frozen", "gone"])
                .rev()
                .flat_map(|dir| [&b"a"[..], b"sub", b"empty", b".", b"new", b"f"].map(|name| (dir, name)));
            let to = || {
                some(&["root", "d", "empty", "squashed", "far", "nothing"]).flat_map(|dir| {
                    [&b"b"[..], b"f", b"d", b"..", b"c2", b"empty", &LONG].map(|name| (dir, name))
                })
            };
            from.flat_map(|from| to().map(move |to| RenameArgs { from: place(from), to: place(to) }))
                .map(Call::Rename)
                .collect()
        }
        Procedure::Link => {
            let dirs = || some(&["root", "d", "empty", "f", "frozen", "far", "squashed", "gone"]);
            let links =
                || dirs().flat_map(|dir| names.iter().map(move |name| DirOp { dir, name: Opaque(name) }));
            all().flat_map(|file| links().map(move |link| Call::Link(LinkArgs { file, link }))).collect()
        }
        Procedure::ReadDir => {
            let ranges = [(0, 8192), (0, 0), (0, 140), (1, 200), (3, 300), (99, 4096), (u64::MAX, 4096)];
            let verfs = [[0; 8], [1; 8]];
            all()
                .flat_map(|dir| ranges.map(|range| (dir, range)))
                .flat_map(|range| verfs.map(|verf| (range, verf)))
                .map(|((dir, (cookie, count)), verf)| Call::ReadDir(ReadDirArgs { dir, cookie, verf, count }))
                .collect()
        }
        Procedure::ReadDirPlus => {
            let ranges =
                [(0, 8192, 8192), (0, 0, 9000), (0, 40, 4096), (2, 4096, 500), (3, 500, 0), (9, 99, 9999)];
            let verfs = [[0; 8], [1; 8]];
            all()
                .flat_map(|dir| ranges.map(|range| (dir, range)))
                .flat_map(|range| verfs.map(|verf| (range, verf)))
                .map(|((dir, (cookie, dircount, maxcount)), verf)| {
                    Call::ReadDirPlus(ReadDirPlusArgs { dir, cookie, verf, dircount, maxcount })
                })
                .collect()
        }
        Procedure::FsStat => all().map(Call::FsStat).collect(),
        Procedure::FsInfo => all().map(Call::FsInfo).collect(),
        Procedure::PathConf => all().map(Call::PathConf).collect(),
        Procedure::Commit => {
            all().map(|file| Call::Commit(CommitArgs { file, offset: 1, count: 2 })).collect()
        }
    }
}

/// One valid call of each procedure.
pub(crate) fn samples(handles: &Handles) -> Vec<Call<'_>> {
    let handle = |wanted| handles.iter().find(|(name, _)| *name == wanted).map(|(_, handle)| handle).unwrap();
    let (root, file, link) = (handle("root"), handle("f"), handle("link"));
    let attributes = SetAttr {
        mode: Some(0o640),
        size: Some(70),
        atime: SetTime::Client(NfsTime { seconds: 1, nseconds: 2 }),
        mtime: SetTime::Server,
        ..SetAttr::default()
    };
    let numbers = SpecData { major: 8, minor: 1 };
    let hello = &b"hello"[..];
    vec![
        Call::Null(()),
        Call::GetAttr(fh(file)),
        Call::SetAttr(SetAttrArgs { object: fh(file), attributes: attributes.clone(), guard: None }),
        Call::Lookup(place(root, "f")),
        Call::Access(AccessArgs { object: fh(file), access: 0x3f }),
        Call::ReadLink(fh(link)),
        Call::Read(ReadArgs { file: fh(file), offset: 10, count: 33 }),
        Call::Write(WriteArgs {
            file: fh(file),
            offset: 3,
            count: 5,
            stable: StableHow::DataSync,
            data: Opaque(hello),
        }),
        Call::Create(CreateArgs { place: place(root, "c1"), how: CreateHow::Unchecked(attributes.clone()) }),
        Call::MkDir(MkDirArgs { place: place(root, "d1"), attributes: mode(0o755) }),
        Call::SymLink(SymLinkArgs { place: place(root, "s1"), attributes: mode(0), target: Opaque(hello) }),
        Call::MkNod(MkNodArgs {
            place: place(root, "n1"),
            what: MkNodData::Device(FileType::Blk, mode(0), numbers),
        }),
        Call::Remove(place(root, "p")),
        Call::RmDir(place(root, "empty")),
        Call::Rename(RenameArgs { from: place(root, "l"), to: place(root, "l2") }),
        Call::Link(LinkArgs { file: fh(file), link: place(root, "f2") }),
        Call::ReadDir(ReadDirArgs { dir: fh(root), cookie: 0, verf: [0; 8], count: 2000 }),
        Call::ReadDirPlus(ReadDirPlusArgs {
            dir: fh(root),
            cookie: 2,
            verf: [0; 8],
            dircount: 900,
            maxcount: 3000,
        }),
        Call::FsStat(fh(root)),
        Call::FsInfo(fh(root)),
        Call::PathConf(fh(root)),
        Call::Commit(CommitArgs { file: fh(file), offset: 0, count: 0 }),
    ]
}
