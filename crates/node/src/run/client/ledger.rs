//! A client's evidence of misbehaviour by replicas, kept in its directory.
//!
//! The file `evidence` has a line for each class and replica. It is replaced atomically, at most once a second. It is
//! the client's testimony: a reader of the file has to trust the client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quorate_wire::ReplicaId;

/// The name of the file.
pub const FILE: &str = "evidence";
/// The first line of the file.
const TITLE: &str = "# What this client has seen: class, replica, count, first, last (seconds since 1970)";
/// The least time between two writes of the file, in nanoseconds.
const WRITE_NS: u64 = 1_000_000_000;
/// The largest file that is read, in bytes: a line for each class of each of 64 replicas is shorter.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The classes of evidence. Their names state what was observed, never why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Bytes from its address fail authentication. The network or a third party may be the cause: this is
    /// never a lie.
    BadMac,
    /// Its state has another digest than f + 1 equal ones at the same checkpoint.
    Diverged,
    /// f + 1 others that agree contradicted one of its replies.
    WrongReplies,
    /// It made two statements that contradict each other.
    Equivocates,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::BadMac, Self::Diverged, Self::WrongReplies, Self::Equivocates];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadMac => "bad mac",
            Self::Diverged => "diverged",
            Self::WrongReplies => "wrong replies",
            Self::Equivocates => "equivocates",
        }
    }

    /// Returns its code for `quorate explain`.
    pub fn code(self) -> &'static str {
        match self {
            Self::WrongReplies => "Q031",
            Self::Diverged => "Q032",
            Self::Equivocates => "Q033",
            Self::BadMac => "Q034",
        }
    }

    /// Returns whether it is evidence against the replica itself, rather than against the network.
    pub fn is_against_the_replica(self) -> bool {
        self != Self::BadMac
    }

    /// The name of the class in the file, without spaces.
    fn key(self) -> String {
        self.name().replace(' ', "-")
    }
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The class.
    pub class: Class,
    /// The replica.
    pub replica: ReplicaId,
    /// How often.
    pub count: u64,
    /// When it was first seen, in seconds since 1970 by the witness's clock.
    pub first: u64,
    /// When it was last seen.
    pub last: u64,
    /// The witness.
    pub by: String,
}

/// How often something was seen, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    count: u64,
    first: u64,
    last: u64,
}

/// A client's ledger. At most one line for each class and replica.
#[derive(Debug, Default)]
pub struct Ledger {
    lines: BTreeMap<(Class, ReplicaId), Seen>,
    /// The file, if the ledger is stored.
    path: Option<PathBuf>,
    /// Whether the file is out of date.
    is_dirty: bool,
    written_ns: u64,
}

impl Ledger {
    /// Opens the ledger in a client's directory, with its earlier entries.
    pub fn keep(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let lines = parse(&read(&path)).collect();
        Self { lines, path: Some(path), ..Self::default() }
    }

    /// Records an observation at `now_s`, in seconds since 1970.
    pub fn note(&mut self, class: Class, replica: ReplicaId, now_s: u64) {
        let seen = self.lines.entry((class, replica)).or_insert(Seen { count: 0, first: now_s, last: now_s });
        seen.count = seen.count.saturating_add(1);
        seen.last = seen.last.max(now_s);
        self.is_dirty = true;
    }

    /// Returns the entries, with `by` as the witness.
    pub fn items(&self, by: &str) -> Vec<Item> {
        items(self.lines.iter().map(|(key, seen)| (*key, *seen)), by)
    }

    /// Writes the file if it is out of date and its last write is not too recent. A failed write is repeated later:
    /// a full disk must not stop a client.
    pub fn tend(&mut self, mono_ns: u64) {
        let Some(path) = &self.path else { return };
        let is_early = self.written_ns > 0 && mono_ns.saturating_sub(self.written_ns) < WRITE_NS;
        if !self.is_dirty || is_early {
            return;
        }
        self.written_ns = mono_ns.max(1);
        self.is_dirty = write(path, &self.text()).is_err();
    }

    fn text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for ((class, replica), Seen { count, first, last }) in &self.lines {
            let _ = writeln!(text, "{} {replica} {count} {first} {last}", class.key());
        }
        text
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let (Some(path), true) = (&self.path, self.is_dirty) {
            let _ = write(path, &self.text());
        }
    }
}

/// Returns the evidence of all clients in a cluster's directory.
pub fn of_all(dir: &Path) -> Vec<Item> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return all };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| crate::home::members::client_number(name).is_some())
        else {
            continue;
        };
        all.extend(items(parse(&read(&entry.path().join(FILE))), name));
    }
    all.sort_by(|a, b| (b.last, a.replica, a.class, &a.by).cmp(&(a.last, b.replica, b.class, &b.by)));
    all
}

fn items(lines: impl Iterator<Item = ((Class, ReplicaId), Seen)>, by: &str) -> Vec<Item> {
    lines
        .map(|((class, replica), Seen { count, first, last })| Item {
            class,
            replica,
            count,
            first,
            last,
            by: by.to_owned(),
        })
        .collect()
}

fn read(path: &Path) -> String {
    let small = fs::metadata(path).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
    if small { fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

/// Parses the valid lines of a file.
fn parse(text: &str) -> impl Iterator<Item = ((Class, ReplicaId), Seen)> + '_ {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let key = words.next()?;
        let class = Class::ALL.into_iter().find(|class| class.key() == key)?;
        let replica = ReplicaId(words.next()?.strip_prefix('r')?.parse().ok()?);
        let mut number = || words.next()?.parse::<u64>().ok();
        let seen = Seen { count: number()?, first: number()?, last: number()? };
        Some(((class, replica), seen))
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    const R2: ReplicaId = ReplicaId(2);

    fn item(class: Class, count: u64, first: u64, last: u64) -> Item {
        Item { class, replica: R2, count, first, last, by: "client-3".to_owned() }
    }

    #[test]
    fn what_was_seen_is_kept_and_comes_back() {
        let dir = TempDir::new("ledger");
        let client = dir.path().join("client-3");
        fs::create_dir_all(&client).unwrap();
        let mut ledger = Ledger::keep(&client);
        ledger.note(Class::WrongReplies, R2, 100);
        ledger.note(Class::WrongReplies, R2, 107);
        ledger.tend(5);
        assert_eq!(of_all(dir.path()), [item(Class::WrongReplies, 2, 100, 107)]);
        // At most once a second, and once more when it is dropped.
        ledger.note(Class::WrongReplies, R2, 108);
        ledger.tend(WRITE_NS);
        assert_eq!(of_all(dir.path())[0].count, 2);
        ledger.tend(WRITE_NS + 5);
        assert_eq!(of_all(dir.path())[0].count, 3);
        ledger.note(Class::BadMac, R2, 109);
        drop(ledger);
        let again = Ledger::keep(&client).items("client-3");
        assert_eq!(again, [item(Class::BadMac, 1, 109, 109), item(Class::WrongReplies, 3, 100, 108)]);
    }

    /// A damaged line is skipped; the others are read.
    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text =
            format!("{TITLE}\nwrong-replies r2 x 1 2\nno-class r1 1 1 1\n\u{1b}[2J r1\ndiverged r1 1 2 3\n");
        let lines: Vec<_> = parse(&text).collect();
        assert_eq!(lines, [((Class::Diverged, ReplicaId(1)), Seen { count: 1, first: 2, last: 3 })]);
    }
}
