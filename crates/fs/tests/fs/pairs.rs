//! Every pair of calls of NFS and MOUNT both ways round: if the rules call them independent, replies and contents are equal.
//!
//! Each call keeps its own batch and time. The file system gives a call at least one more than the last time that was
//! used. So the test takes that time back before each call: the rules are about the calls, and not about the clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::nfs3::rules::FsRules;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::settings::{Atime, Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_service::options::Options;
use quorate_service::parallel::{Arguments, Rules as _};
use quorate_service::{Alone, Context, Service, Stop, View};
use quorate_wire::SeqNum;

/// Where the first page has the last time that was used.
const TIME_AT: usize = 64;
/// The time of the first call, in nanoseconds.
const TIME_NS: u64 = 1_700_000_000_000_000_000;

/// The file system. Each operation begins with its own number, which decides its batch and time.
struct Own(Fs);

impl Service for Own {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let (number, operation) = operation.split_first_chunk().unwrap();
        let number = u64::from_le_bytes(*number);
        let time_ns = TIME_NS + number * 1_000_000_000;
        if number > 0 {
            state.write(0, TIME_AT, &(time_ns - 1).to_le_bytes())?;
        }
        self.0.execute(Context { time_ns, seq: SeqNum(number), ..cx }, operation, state, out)
    }
}

type State = Alone<Own>;

fn settings(atime: Atime) -> Settings {
    let exports = ["/", "/d"].map(|path| Export { squash: Squash::Nobody, ..Export::of(path) });
    Settings { exports: exports.to_vec(), atime, ..open_settings() }
}

/// Calls, and what they are made with.
struct Play {
    settings: Settings,
    /// Encodes calls.
    calls: Bench,
    /// The calls that make the state in which each pair begins.
    prelude: Vec<Vec<u8>>,
}

fn execute(state: &mut State, number: u64, operation: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    state.execute(0, &[&number.to_le_bytes(), operation].concat(), &mut out);
    out
}

impl Play {
    fn empty(&self) -> State {
        Alone::new(Own(Fs::new(self.settings.clone()).unwrap()), &Options::default()).unwrap()
    }

    /// Adds a call to the prelude. Returns the body of its reply.
    fn first(&mut self, state: &mut State, operation: Vec<u8>) -> Vec<u8> {
        let number = u64::try_from(self.prelude.len()).unwrap();
        let reply = execute(state, number, &operation);
        self.prelude.push(operation);
        split(&reply).1.to_vec()
    }

    fn make(&mut self, state: &mut State, call: &Call<'_>) -> H {
        let operation = self.calls.nfs_operation(call);
        let body = self.first(state, operation);
        xdr::decode::<NfsResult<CreateOk<'_>, Wcc>>(&body).unwrap().unwrap().object.unwrap().0.to_vec()
    }

    fn mount(&mut self, procedure: mount3::Procedure, path: &str) -> Vec<u8> {
        let args = if path.is_empty() { Vec::new() } else { xdr::encode(&Opaque::<1024>(path.as_bytes())) };
        self.calls.operation(mount3::PROGRAM, procedure as u32, &args)
    }

    /// Returns the state in which each pair begins.
    fn start(&self) -> State {
        let mut state = self.empty();
        for (number, operation) in (0..).zip(&self.prelude) {
            execute(&mut state, number, operation);
        }
        state
    }
}

/// A call with its name.
type Named = (String, Vec<u8>);

fn write<'a>(file: &'a [u8], data: &'a [u8]) -> Call<'a> {
    let count = u32::try_from(data.len()).unwrap();
    Call::Write(WriteArgs {
        file: fh(file),
        offset: 3,
        count,
        stable: StableHow::Unstable,
        data: Opaque(data),
    })
}

fn setattr(object: &[u8], attributes: SetAttr) -> Call<'_> {
    Call::SetAttr(SetAttrArgs { object: fh(object), attributes, guard: None })
}

fn list(dir: &[u8]) -> Call<'_> {
    Call::ReadDirPlus(ReadDirPlusArgs {
        dir: fh(dir),
        cookie: 0,
        verf: [0; 8],
        dircount: 4096,
        maxcount: 8192,
    })
}

fn read(file: &[u8]) -> Call<'_> {
    Call::Read(ReadArgs { file: fh(file), offset: 0, count: 9000 })
}

/// Makes two directories, two files and two links. Returns every call on them, and the calls that show the contents.
fn play(atime: Atime) -> (Play, Vec<Named>, Vec<Vec<u8>>) {
    let mut play = Play { settings: settings(atime), calls: Bench::new(), prelude: Vec::new() };
    let mut state = play.empty();
    let mnt = play.mount(mount3::Procedure::Mnt, "/");
    let body = play.first(&mut state, mnt);
    let root = match xdr::decode(&body).unwrap() {
        mount3::MountReply::Done { handle, .. } => handle.0.to_vec(),
        mount3::MountReply::Failed(stat) => panic!("{stat:?}"),
    };
    let make_dir = |place| Call::MkDir(MkDirArgs { place, attributes: mode(0o755) });
    let d = play.make(&mut state, &make_dir(place(&root, "d")));
    play.make(&mut state, &make_dir(place(&d, "sub")));
    let create = |place| Call::Create(CreateArgs { place, how: CreateHow::Guarded(mode(0o644)) });
    let f = play.make(&mut state, &create(place(&root, "f")));
    let g = play.make(&mut state, &create(place(&d, "g")));
    let symlink = |place| {
        Call::SymLink(SymLinkArgs { place, attributes: SetAttr::default(), target: Opaque(b"target") })
    };
    let l = play.make(&mut state, &symlink(place(&root, "l")));
    let large = [7; 5000];
    for call in [write(&f, &large), write(&g, b"small")] {
        let operation = play.calls.nfs_operation(&call);
        play.first(&mut state, operation);
    }
    let mut calls: Vec<Call<'_>> = vec![Call::Null(())];
    for object in [&root, &d, &f, &g, &l] {
        calls.extend([
            Call::GetAttr(fh(object)),
            Call::Access(AccessArgs { object: fh(object), access: 0x3f }),
            Call::FsStat(fh(object)),
            Call::FsInfo(fh(object)),
            Call::PathConf(fh(object)),
            setattr(object, mode(0o700)),
        ]);
    }
    for file in [&f, &g] {
        calls.extend([
            read(file),
            write(file, b"other"),
            write(file, &large),
            Call::Commit(CommitArgs { file: fh(file), offset: 0, count: 0 }),
            setattr(file, size(2)),
            Call::Link(LinkArgs { file: fh(file), link: place(&root, "linked") }),
        ]);
    }
    for (dir, name) in [(&root, "f"), (&d, "g")] {
        calls.extend([
            Call::ReadDir(ReadDirArgs { dir: fh(dir), cookie: 0, verf: [0; 8], count: 4096 }),
            list(dir),
            Call::Lookup(place(dir, name)),
            create(place(dir, "new")),
            make_dir(place(dir, "new")),
            symlink(place(dir, "new")),
            Call::MkNod(MkNodArgs {
                place: place(dir, "new"),
                what: MkNodData::Pipe(FileType::Fifo, mode(0o600)),
            }),
            Call::Remove(place(dir, name)),
            Call::RmDir(place(dir, "sub")),
            Call::Rename(RenameArgs { from: place(dir, name), to: place(dir, "renamed") }),
        ]);
    }
    calls.push(Call::ReadLink(fh(&l)));
    let mut named: Vec<Named> = Vec::new();
    for call in &calls {
        let procedure = call.procedure();
        named.push((format!("{procedure:?}"), play.calls.nfs_operation(call)));
    }
    for (name, procedure, path) in [
        ("Mnt", mount3::Procedure::Mnt, "/"),
        ("Mnt", mount3::Procedure::Mnt, "/d"),
        ("Umnt", mount3::Procedure::Umnt, "/"),
        ("UmntAll", mount3::Procedure::UmntAll, ""),
        ("Dump", mount3::Procedure::Dump, ""),
        ("Export", mount3::Procedure::Export, ""),
        ("MountNull", mount3::Procedure::Null, ""),
    ] {
        for machine in [1, 2] {
            play.calls.address = quorate_fs::nfs3::operation::mapped([10, 0, 0, machine]);
            named.push((name.to_owned(), play.mount(procedure, path)));
        }
    }
    let mut shows: Vec<Call<'_>> =
        [&root, &d, &f, &g, &l].into_iter().map(|file| Call::GetAttr(fh(file))).collect();
    shows.extend([
        list(&root),
        list(&d),
        read(&f),
        read(&g),
        Call::ReadLink(fh(&l)),
        Call::FsStat(fh(&root)),
    ]);
    let mut shows: Vec<Vec<u8>> = shows.iter().map(|call| play.calls.nfs_operation(call)).collect();
    shows.push(play.mount(mount3::Procedure::Dump, ""));
    (play, named, shows)
}

/// Checks all pairs. `hidden`: calls of these procedures are declared to be independent of all others.
fn check(atime: Atime, hidden: &[&str]) -> Result<usize, String> {
    let (play, calls, shows) = play(atime);
    let rules = FsRules::new(Fs::new(play.settings.clone()).unwrap());
    let matrices = rules.matrices().unwrap();
    let parsed: Vec<Arguments> = calls
        .iter()
        .map(|(name, operation)| {
            let mut arguments = Arguments::default();
            arguments.begin(0);
            if !hidden.contains(&name.as_str()) {
                rules.parse(operation, &mut arguments);
            }
            assert!(!arguments.is_everything(), "{name}");
            arguments
        })
        .collect();
    let number = u64::try_from(play.prelude.len()).unwrap();
    let mut independent = 0;
    for (a, (first, one)) in calls.iter().enumerate() {
        for (b, (second, other)) in calls.iter().enumerate() {
            let is_hidden = |name: &String| hidden.contains(&name.as_str());
            let is_of_interest = hidden.is_empty() || is_hidden(first) || is_hidden(second);
            if a == b || !is_of_interest || parsed[a].depends(&parsed[b], &matrices) {
                continue;
            }
            independent += 1;
            let (mut forth, mut back) = (play.start(), play.start());
            let replies = (execute(&mut forth, number, one), execute(&mut forth, number + 1, other));
            let second_first = execute(&mut back, number + 1, other);
            let same = (execute(&mut back, number, one), second_first);
            let show = |state: &mut State| -> Vec<Vec<u8>> {
                (number + 2..).zip(&shows).map(|(number, call)| execute(state, number, call)).collect()
            };
            if replies != same || show(&mut forth) != show(&mut back) {
                return Err(format!("{first} {a} and {second} {b}, access times {atime:?}"));
            }
        }
    }
    Ok(independent)
}

#[test]
fn independent_calls_commute() {
    for (atime, least) in [(Atime::Strict, 1000), (Atime::Relatime, 1000), (Atime::None, 1200)] {
        let independent = check(atime, &[]).unwrap_or_else(|pair| panic!("{pair}"));
        println!("{atime:?}: {independent} pairs are independent");
        assert!(independent > least, "{atime:?}: {independent} pairs are independent");
    }
}

/// The rules of each of these procedures matter: without them, a pair is found.
#[test]
fn wrong_rules_of_the_file_system_are_found() {
    let without_times = [
        "Write", "SetAttr", "Create", "MkDir", "SymLink", "MkNod", "Remove", "RmDir", "Rename", "Link",
        "Mnt", "Umnt", "UmntAll",
    ];
    for hidden in without_times {
        assert!(check(Atime::None, &[hidden]).is_err(), "{hidden} may be hidden");
    }
    for hidden in ["Read", "ReadLink", "ReadDir", "ReadDirPlus"] {
        assert!(check(Atime::Strict, &[hidden]).is_err(), "{hidden} may be hidden");
    }
    for hidden in ["GetAttr", "Lookup", "Dump", "FsStat"] {
        assert!(check(Atime::Strict, &[hidden]).is_err(), "{hidden} may be hidden");
    }
}
