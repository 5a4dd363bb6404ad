//! What can be said on the command line of a comparison.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::{Andrew, Arm, Postmark, Reads, Store, has, postmark};

const USAGE: &str = "kernel postmark|andrew [--repeats N] [--arms bfs,bfs-strict,bfs-ro-lookup,bfs-nr,ganesha,client] \
    [--durability memory,async,sync] [--mount-bytes BYTES] [--quick|--transactions N] [--copies N] [--no-compile] [--json FILE]";
const REPEATS: usize = 3;
/// What ours have on disk before they answer.
const DURABILITIES: [&str; 3] = ["memory", "async", "sync"];
/// The client alone exists for the Andrew benchmark only: it shows how much of the time is the client's own computing.
const CLIENT: &str = "client";
/// The paper's two BFS are of the Andrew benchmark.
const SYSTEMS: [&str; 6] = ["bfs", "bfs-strict", "bfs-ro-lookup", "bfs-nr", "ganesha", CLIENT];
const POSTMARK: [&str; 3] = ["bfs", "bfs-nr", "ganesha"];
/// The sizes of READ and WRITE that a Linux client takes: a power of two in these bounds.
const BYTES_MIN: u32 = 1024;
const BYTES_MAX: u32 = 1 << 20;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Postmark,
    Andrew,
}

impl Load {
    pub(super) fn read(name: &str) -> Option<Self> {
        [Self::Postmark, Self::Andrew].into_iter().find(|load| load.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Postmark => "postmark",
            Self::Andrew => "andrew",
        }
    }
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) load: Load,
    pub(super) repeats: usize,
    pub(super) transactions: u32,
    pub(super) copies: u32,
    /// Whether a compiler exists and shall be used.
    pub(super) compiles: bool,
    /// The most bytes of a READ and of a WRITE, if not what client and server agree on.
    pub(super) mount_bytes: Option<u32>,
    pub(super) durabilities: Vec<&'static str>,
    pub(super) systems: Vec<&'static str>,
    pub(super) json: Option<PathBuf>,
    pub(super) program: Option<PathBuf>,
    pub(super) dir: Option<PathBuf>,
}

impl Order {
    /// None: help was asked for.
    pub(super) fn read(load: Load, args: &[String]) -> Result<Option<Self>> {
        let mut order = Self {
            load,
            repeats: REPEATS,
            transactions: postmark::FULL,
            copies: 1,
            compiles: has("cc"),
            mount_bytes: None,
            durabilities: vec!["memory", "sync"],
            systems: if load == Load::Postmark { POSTMARK.to_vec() } else { SYSTEMS.to_vec() },
            json: None,
            program: None,
            dir: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value: {USAGE}"));
            let wrong = |value: &str, expected: &str| format!("{arg} {value}: {expected} was expected");
            match (arg.as_str(), load) {
                ("--help" | "-h", _) => return Ok(None),
                ("--quick", Load::Postmark) => order.transactions = postmark::QUICK,
                ("--transactions", Load::Postmark) => {
                    let text = value()?;
                    let transactions = text.parse().ok().filter(|count| (100..=10_000_000).contains(count));
                    order.transactions = transactions.with_context(|| wrong(text, "100 to 10000000"))?;
                }
                ("--no-compile", Load::Andrew) => order.compiles = false,
                ("--copies", Load::Andrew) => {
                    let text = value()?;
                    let copies = text.parse().ok().filter(|copies| (1..=1000).contains(copies));
                    order.copies = copies.with_context(|| wrong(text, "1 to 1000"))?;
                }
                ("--repeats", _) => {
                    let text = value()?;
                    let repeats = text.parse().ok().filter(|repeats| (1..=100).contains(repeats));
                    order.repeats = repeats.with_context(|| wrong(text, "1 to 100"))?;
                }
                ("--mount-bytes", _) => {
                    let text = value()?;
                    let good =
                        |bytes: &u32| bytes.is_power_of_two() && (BYTES_MIN..=BYTES_MAX).contains(bytes);
                    let bytes = text.parse().ok().filter(good);
                    let bytes =
                        bytes.with_context(|| wrong(text, "a power of two, 1024 to 1048576 bytes,"))?;
                    order.mount_bytes = Some(bytes);
                }
                ("--durability", _) => order.durabilities = list(arg, value()?, &DURABILITIES)?,
                ("--arms", _) => {
                    order.systems = list(arg, value()?, &SYSTEMS)?;
                    if load == Load::Postmark && order.has_client() {
                        bail!("{arg}: `{CLIENT}` is of andrew only: {USAGE}");
                    }
                    if order.systems.iter().all(|system| *system == CLIENT) {
                        bail!("{arg} {CLIENT}: a server is needed beside it: {USAGE}");
                    }
                }
                ("--json", _) => order.json = Some(std::path::absolute(value()?)?),
                ("--dir", _) => order.dir = Some(std::path::absolute(value()?)?),
                ("--program", _) => {
                    let file = value()?;
                    order.program = Some(std::fs::canonicalize(file).with_context(|| file.clone())?);
                }
                (other, _) => bail!("{}: `{other}` is unknown: {USAGE}", load.name()),
            }
        }
        Ok(Some(order))
    }

    /// Returns the servers that were asked for, in the order in which they take turns.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let ours =
            |arm: fn(&'static str) -> Arm| self.durabilities.iter().copied().map(arm).collect::<Vec<_>>();
        let stores = || [Store::Disk, Store::Tmpfs, Store::Mem].map(Arm::Ganesha).to_vec();
        let arms = self.systems.iter().map(|system| match *system {
            "bfs" => ours(|durability| Arm::Bfs(Reads::Default, durability)),
            // As the paper has them.
            "bfs-strict" => vec![Arm::Bfs(Reads::Strict, "memory")],
            "bfs-ro-lookup" => vec![Arm::Bfs(Reads::Lookup, "memory")],
            "bfs-nr" => ours(Arm::Alone),
            CLIENT => Vec::new(),
            _ => stores(),
        });
        arms.flatten().collect()
    }

    /// Says whether the load is run in the client's own memory, too.
    pub(super) fn has_client(&self) -> bool {
        self.systems.contains(&CLIENT)
    }

    pub(super) fn postmark(&self) -> Postmark {
        Postmark { transactions: self.transactions }
    }

    pub(super) fn andrew(&self) -> Andrew {
        Andrew { copies: self.copies, compiles: self.compiles }
    }
}

/// Reads some of these, with commas between them.
fn list(arg: &str, text: &str, all: &[&'static str]) -> Result<Vec<&'static str>> {
    let word = |word: &str| all.iter().copied().find(|known| *known == word);
    let found: Option<Vec<&'static str>> = text.split(',').map(word).collect();
    found.with_context(|| format!("{arg} {text}: one or some of {} were expected", all.join(",")))
}

/// Returns what a load is, its flags with their units and defaults, and an example.
pub(super) fn help(load: Load) -> String {
    let (about, own, example) = match load {
        Load::Postmark => (
            "The program PostMark in the guest, on each server in turn: 10,000 files of 512 bytes to 16 KB, 100,000\n\
             transactions (DSN01 Figure 9). Prints transactions a second, and ratios beside the paper's.",
            "  --quick              the same as --transactions 10000\n\
             \x20 --transactions N     transactions, with a tenth as many files, 100 to 10000000 (default 100000)\n",
            "cargo xtask kernel postmark --quick --repeats 5",
        ),
        Load::Andrew => (
            "The five phases of the Andrew benchmark in the guest, on each server in turn (OSDI99 Tables 2 and 3, DSN01\n\
             Figure 8): mkdir, copy, stat, read, compile. Prints seconds of each, and ratios beside the paper's.",
            "  --copies N           copies of the tree of 70 files, 1 to 1000 (default 1; the papers: 1, 100, 500)\n\
             \x20 --no-compile         leaves out phase 5, which is nearly all the client's own computing\n",
            "cargo xtask kernel andrew --copies 100",
        ),
    };
    format!(
        "{about}\n\nUsage: cargo xtask {USAGE}\n\n{own}\
         \x20 --repeats N          how often each server has its turn, 1 to 100 (default {REPEATS})\n\
         \x20 --arms LIST          some of bfs,bfs-strict,bfs-ro-lookup,bfs-nr,ganesha,client (default all; of postmark bfs,bfs-nr,ganesha; Ganesha\n\
         \x20                      on a disk, on tmpfs, in memory; bfs-strict and bfs-ro-lookup are the paper's, in memory;\n\
         \x20                      client: the load in the client's own memory, of andrew only)\n\
         \x20 --durability LIST    what bfs and bfs-nr have on disk before they answer, a row each: some of\n\
         \x20                      memory,async,sync (default memory,sync)\n\
         \x20 --mount-bytes BYTES  rsize and wsize of the mount (default: what client and server agree on; the papers: 4096)\n\
         \x20 --json FILE          where the figures go (default target/kernel/{}.json)\n\
         \x20 --program FILE       the `quorate` that is run (default: it is built)\n\
         \x20 --dir DIR            where the servers have their files (default target/kernel/run)\n\n\
         As root. Example: {example}\n",
        load.name()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn read(load: Load, args: &str) -> Result<Option<Order>> {
        Order::read(load, &args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arms_are_those_that_were_asked_for() {
        let order = read(Load::Postmark, "--durability sync --arms bfs-nr,bfs").unwrap().unwrap();
        assert_eq!(order.arms(), [Arm::Alone("sync"), Arm::Bfs(Reads::Default, "sync")]);
        let all = read(Load::Andrew, "").unwrap().unwrap().arms();
        assert_eq!(all.len(), 9);
        assert!(all.contains(&Arm::Ganesha(Store::Mem)) && all.contains(&Arm::Bfs(Reads::Strict, "memory")));
        assert_eq!(read(Load::Postmark, "").unwrap().unwrap().arms().len(), 7);
        let client = |load, args| read(load, args).unwrap().unwrap().has_client();
        assert!(client(Load::Andrew, "") && client(Load::Andrew, "--arms bfs,client"));
        assert!(!client(Load::Postmark, "") && !client(Load::Andrew, "--arms bfs,bfs-nr"));
    }

    #[test]
    fn flags_are_read() {
        let order = read(Load::Postmark, "--quick --repeats 7 --mount-bytes 4096").unwrap().unwrap();
        assert_eq!((order.repeats, order.mount_bytes), (7, Some(4096)));
        assert_eq!((order.postmark().files(), order.postmark().transactions), (1_000, 10_000));
        let order = read(Load::Postmark, "--transactions 2000").unwrap().unwrap();
        assert_eq!(order.postmark().transactions, 2_000);
        let andrew = read(Load::Andrew, "--copies 100 --no-compile").unwrap().unwrap().andrew();
        assert_eq!(andrew, Andrew { copies: 100, compiles: false });
        assert!(read(Load::Andrew, "--help").unwrap().is_none());
        assert!(help(Load::Andrew).contains("--copies") && help(Load::Postmark).contains("--quick"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_was_expected() {
        for (load, args, says) in [
            (Load::Postmark, "--durability never", "memory,async,sync"),
            (Load::Postmark, "--mount-bytes 5000", "power of two"),
            (Load::Postmark, "--repeats 0", "1 to 100"),
            (Load::Postmark, "--transactions 10", "100 to"),
            (Load::Postmark, "--copies 3", "unknown"),
            (Load::Postmark, "--arms bfs,client", "andrew only"),
            (Load::Andrew, "--arms client", "a server is needed"),
            (Load::Andrew, "--copies none", "1 to 1000"),
            (Load::Andrew, "--quick", "unknown"),
            (Load::Andrew, "--json", "needs a value"),
        ] {
            let error = format!("{:#}", read(load, args).unwrap_err());
            assert!(error.contains(says), "{args}: {error}");
        }
    }
}
