//! `quorate explain CODE`.

use std::fmt;
use std::process::ExitCode;

use clap::Args;

use crate::fail::{Failure, Outcome, nearest};
use crate::out;

/// Declares the codes with what they mean.
macro_rules! codes {
    ($($name:ident = $number:literal: $title:literal, $text:literal;)*) => {
        /// Why a command failed. A number, once given, keeps its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $(#[doc = $title] $name,)* }

        impl Code {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    Usage = "Q001": "a command or flag that does not exist, or one that is missing",
        "Every command has --help, with an example that can be pasted. Where a name is near to one that\n\
         exists, the error says so. Status 2.";
    Value = "Q002": "the value of a flag or key is not of its form",
        "The error says what was expected. In node.toml durations and sizes are texts with a unit: \"250ms\",\n\
         \"64KiB\". For flags: a seed is a whole number, decimal or hexadecimal (0x2f81), below 2^64. A replica is r0, r1, ...; a\n\
         request is a client and its number, c0:1, or with a lane, c0.2:1. Status 2.";
    Taken = "Q003": "an address is taken",
        "Another process listens on the address that a replica or a front door was to use. The error names\n\
         the port and where another one is chosen: a node's stands in its node.toml as `listen`, and in the\n\
         tables of the other nodes. Status 2.";
    Rule = "Q004": "settings that break a rule or contradict one another",
        "The error names the key, its value and the rule. The rule that is broken most often: n replicas\n\
         tolerate f faulty ones only if n >= 3f + 1, because a quorum must be reachable with f silent and any\n\
         two quorums must share a correct replica. So f = 1 takes 4 replicas, f = 2 takes 7. Status 2.";
    Scenario = "Q005": "no such scenario",
        "`quorate sim list` has all of them, with the faults of docs/faults.md that each covers. Status 2.";
    Recording = "Q006": "a recording cannot be read",
        "The file is not there, is damaged, or was made by another version: a recording holds inputs, and only\n\
         the code that made it replays them to the same actions. Status 2.";
    Violation = "Q007": "a checker found a broken rule",
        "What was broken, at which step, by whom it was seen and how to see it again stands in the output. The\n\
         same seed, scenario, size and code give the same run, so the command shows it again every time. If a\n\
         correct replica broke the rule, it is our bug: the seed is all that a report needs. Status 1.";
    Stuck = "Q008": "a run did not finish",
        "The faults had stopped, a quorum of correct replicas was connected, and still a request was not\n\
         executed within its bound: liveness is lost. The output has the seed and what each replica waits for.\n\
         Status 1.";
    Setting = "Q009": "no such setting",
        "A node's settings are the keys of its node.toml; `quorate init` writes each of them there with what it\n\
         means. Those of a simulation are named as in `quorate sim run --help`. A key that is not known, or one\n\
         that is missing, is never passed over: where the name is near to one that exists, the error says so.\n\
         Status 2.";
    Absent = "Q010": "what was asked for is not in this run",
        "A step after the run's last one, a replica that the cluster does not have, or a request that no\n\
         client made. Status 2.";
    Output = "Q011": "output cannot be written",
        "The error names the file. Status 1.";
    Exposed = "Q012": "a key file can be read or written by others",
        "Whoever has a node's key can speak for it: a replica's is one of the f that may lie. Take the rights\n\
         away (chmod 600), and if others had a login on the machine, take the node for one that is in their\n\
         hands. Status 2.";
    Unknown = "Q013": "no such code",
        "Codes are Q001, Q002 and so on; `quorate explain` lists them. Status 2.";
    NoExperiment = "Q014": "no such experiment",
        "`quorate bench list` has all of them, with the table or figure that each repeats. Status 2.";
    Bound = "Q015": "a statement that an experiment checks does not hold",
        "The output names the statement, the figure and the bound. On a busy machine, or with fewer cores than\n\
         the experiment needs, that is what one sees: the output has the load and the pinning. Status 1.";
    Experiment = "Q016": "an experiment could not be run",
        "One of its processes failed, or the machine lacks something that it needs; the error says what.\n\
         Status 1.";
    Unreadable = "Q017": "a file of a node is missing, or cannot be read or understood",
        "The error names the file. cluster.toml is the same at every node, so it can be copied from another\n\
         one; node.toml can be written anew. Nothing was changed. Status 2.";
    Unwritable = "Q018": "a directory or file cannot be written",
        "The rights, a file system that is mounted read-only, or a full disk. Nothing was changed. Status 2.";
    WrongKey = "Q019": "a key is damaged, or another node's",
        "The key does not belong to the public key that cluster.toml has for this node. Put it back from a copy.\n\
         Without one the node cannot speak for itself any more, and counts as one of the f faulty ones.\n\
         Status 2.";
    OtherFormat = "Q020": "files of a version that this program does not read",
        "Nothing was changed. Run the version that wrote them. For a replica there is another way: move its\n\
         log/ and checkpoint/ away, and it rejoins from the others; never more than f at a time. Status 2.";
    Occupied = "Q021": "there is something already where something new was to be made",
        "Keys are never overwritten. Choose another directory, or move this one away. Status 2.";
    InUse = "Q022": "another process runs on the same directory",
        "Two processes with one identity would contradict each other, which is what a liar does. Stop the\n\
         other one first. Status 2.";
    Disk = "Q023": "the disk has failed, or is full",
        "The replica has stopped rather than promise what it could not keep: after a failed fsync nobody knows\n\
         what the disk holds. The others go on. Look at the disk, replace it if need be, and start the replica\n\
         again: it finds out by itself whether it still has its memory. Status 1.";
    Network = "Q024": "the network or the system refuses something that a node needs",
        "A socket, a thread, a signal; the error says what. Status 1.";
    Unreachable = "Q025": "the cluster does not answer, or does not run",
        "More than f replicas are down or cannot be reached, so nothing is ordered; what was acknowledged is\n\
         not lost. Start what is missing: `quorate up` for a cluster on this machine, `quorate replica` on each\n\
         machine otherwise. Each replica says in its log what it waits for. Status 3.";
    WrongReplies = "Q031": "evidence: a replica's replies were contradicted by f + 1 others that agree",
        "A client had an operation done, and this replica's reply to it is not that of f + 1 others, of which at\n\
         least one is correct. No two correct replicas can differ there, so this one has a damaged state or\n\
         program, or is in other hands. Nobody was deceived: the client took what the others said. Whoever reads\n\
         this trusts the client that reports it. Look at the replica's machine; stop the replica, empty its log/\n\
         and checkpoint/, and start it: it rejoins from the others. If it goes on, take the machine for one that is in\n\
         other hands, and give the replica another. Status 1.";
    Diverged = "Q032": "evidence: a replica's state has another digest than f + 1 others at the same checkpoint",
        "Whoever asked the replicas has compared their digests. A damaged disk or memory, another version of the\n\
         program, a service that is not deterministic, or a lie. A replica that finds its own damage fetches the\n\
         state from the others, and agrees again at the next checkpoint; the old one stays visible for 16\n\
         checkpoints. One that goes on differing is to be treated as in Q031. Status 1.";
    Equivocates = "Q033": "evidence: a replica has made two statements that exclude one another",
        "f + 1 replicas tell of it, so a correct one has seen it: for example two proposals for one number. A\n\
         correct replica never does that, unless two processes run with its identity, or an old copy of its disk was\n\
         put back. See to that first; else treat it as in Q031. Status 1.";
    BadMac = "Q034": "evidence: bytes from a replica's address fail authentication",
        "The network may have changed them, or a third party may have sent them under that name: nothing is said\n\
         against the replica. A few of them mean nothing. If they go on, compare cluster.toml at both ends (it is\n\
         the same everywhere), and look for whoever else can send from that address. Status 1.";
    TooMany = "Q044": "one fault more than the cluster bears",
        "With n = 3f + 1 replicas the service stays correct and available while f of them are broken. One more,\n\
         and it stops until one heals; nothing is lost by that as long as replicas only stop. Status 2.";
    Demo = "Q045": "the demonstration has found something lost or wrong",
        "A value that was acknowledged is missing or is another one, or the cluster did not get on with f replicas\n\
         broken. That is our bug, unless somebody else wrote to the same cluster meanwhile. The directory is left as\n\
         it was, with each replica's replica.log. Status 1.";
    NoRight = "Q046": "whoever asks has no right to it",
        "Clients have rights: to read, to write, or to add and remove clients as well. cluster.toml names those that\n\
         may do the last as the cluster was made; `quorate add-client --admin` makes more. Nothing was done. Status 2.";
    NoClient = "Q047": "no such client in this cluster",
        "It was never added, or it was removed. `quorate add-client` adds one to a cluster that runs. Nothing was\n\
         done. Status 2.";
    Timestamps = "Q053": "what a client has used of its timestamps cannot be told",
        "Replicas tell a client's requests apart by their timestamps, in all its runs. keys/time in the client's\n\
         directory has the number below which all may have been used; it is damaged, or none is left above it. Write\n\
         the time of day in nanoseconds since 1970 into it, later than any that this client can have used. Nothing\n\
         was done. Status 2.";
    OtherState = "Q062": "a state that an earlier version has written in another form",
        "Nothing was changed. The last replies to clients stand in the state, and have another form in this version.\n\
         Run the version that wrote it, copy the data out (quorate fs cp, quorate kv), and write them into a new\n\
         cluster of this version. Status 2.";
    TableFull = "Q063": "replicas keep no last reply for another lane of this client",
        "Replicas keep the last reply to each lane of each client, so that nothing is done twice. A client has\n\
         client_lanes_max of them, and all clients together clients_max, less an eighth that is for administrators\n\
         and replicas. A lane that was not used for a minute makes room. Nothing was done. Status 1.";
    NoFile = "Q050": "the file system does not do it",
        "No such file, a name that is taken, a directory that is not empty: the error says which, in the words of any\n\
         file system. Nothing was changed by the call that failed. No room is Q055, no right to it Q056. Status 1.";
    Damaged = "Q051": "a file system is not in order",
        "`quorate fs fsck` has found something in the state of a replica that no correct program leaves there, or a\n\
         state that is not the one that was agreed on. If other replicas have the same finding, it is our bug: the\n\
         findings are what a report needs. If only this one has it, its memory or program is damaged: empty its\n\
         log/ and checkpoint/, and start it; it fetches the state from the others. Status 1.";
    NoFuse = "Q052": "this machine cannot mount through FUSE",
        "`quorate mount` needs the device /dev/fuse (the kernel module fuse; in a container it has to be let in), with\n\
         the right to open it (udev gives it to everyone; where there is no udev: chmod 666 /dev/fuse), and for those\n\
         who are not root the program fusermount3 of the package fuse3. Without them the file system can be used by\n\
         `quorate fs`, or by the kernel's NFS client through `quorate nfs`. Status 2.";
    NoRoom = "Q055": "no room in the file system",
        "All pages are taken (fs_capacity), there are as many files as there may be (fs_inodes_max), or you own as much\n\
         as one user may (fs_quota_bytes, fs_quota_inodes); the error says which. Reading and removing go on. `quorate\n\
         fs df` has the figures. The limits hold from the first start on: for more, copy the files to a new file\n\
         system. A file that `quorate fs cp` was to replace is as it was. Status 1.";
    Denied = "Q056": "the file system does not let this user do it",
        "Rights are those of your user and groups here, checked by the replicas. fs_exports in node.toml says whether\n\
         root counts as nobody, what is read-only, and from which networks an export may be used: a client's address is\n\
         the one in its own node.toml. Nothing was changed. Status 1.";
}

impl Code {
    /// The exit status of a command that fails so.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Violation
            | Self::Stuck
            | Self::Output
            | Self::Bound
            | Self::Experiment
            | Self::WrongReplies
            | Self::Diverged
            | Self::Equivocates
            | Self::BadMac
            | Self::Disk
            | Self::Demo
            | Self::NoFile
            | Self::TableFull
            | Self::NoRoom
            | Self::Denied
            | Self::Damaged
            | Self::Network => 1,
            Self::Unreachable => 3,
            Self::Usage
            | Self::TooMany
            | Self::NoRight
            | Self::NoClient
            | Self::Timestamps
            | Self::OtherState
            | Self::Value
            | Self::Taken
            | Self::Rule
            | Self::Scenario
            | Self::Recording
            | Self::Setting
            | Self::Absent
            | Self::NoExperiment
            | Self::Exposed
            | Self::Unreadable
            | Self::Unwritable
            | Self::WrongKey
            | Self::OtherFormat
            | Self::Occupied
            | Self::InUse
            | Self::NoFuse
            | Self::Unknown => 2,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

/// Tell more about an error code
///
/// Without a code it lists all of them.
///
///   quorate explain Q004
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explain {
    /// The code, as in `error Q004: ...`
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(&self) -> Outcome {
        let Some(typed) = &self.code else {
            for code in Code::ALL {
                out::line(format!("{code}  {}", code.title()));
            }
            return Ok(ExitCode::SUCCESS);
        };
        let wanted = typed.to_uppercase();
        if let Some(code) = Code::ALL.iter().find(|code| code.number() == wanted) {
            out::line(format!("{code}: {}\n\n{}", code.title(), code.text()));
            return Ok(ExitCode::SUCCESS);
        }
        let near = nearest(&wanted, Code::ALL.iter().map(|code| code.number()));
        let next = near.map_or("quorate explain".to_owned(), |code| format!("quorate explain {code}"));
        Err(Failure::new(Code::Unknown, format!("no code `{typed}`")).next(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `explain` says of the status is the status.
    #[test]
    fn the_text_ends_with_the_status() {
        for code in Code::ALL {
            assert!(code.text().ends_with(&format!("Status {}.", code.status())), "{code}");
        }
    }

    #[test]
    fn codes_are_distinct_and_in_order() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
    }
}
