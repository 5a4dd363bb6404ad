//! The codes of errors: a stable number for each, with its exit status and what it means.

use std::fmt;

/// Declares the codes with what they mean.
macro_rules! codes {
    ($($name:ident = $number:literal: $title:literal, $text:literal;)*) => {
        /// Why a command failed. A number keeps its meaning in all versions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $(#[doc = $title] $name,)* }

        impl Code {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(crate) fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    Usage = "Q001": "unknown or missing command or flag",
        "The command line names a command or flag that does not exist, or lacks one that is required. The error\n\
         names the nearest existing name. Run the command with --help: it has an example to copy. Status 2.";
    Value = "Q002": "invalid value of a flag or key",
        "The error names the flag or key and the expected format. In node.toml, durations and sizes are strings with\n\
         a unit: \"250ms\", \"64KiB\". On the command line, a seed is a whole number below 2^64, decimal or hexadecimal\n\
         (0x2f81); a replica is r0, r1, ... A request is CLIENT:TIMESTAMP, such as c0:1, or CLIENT.LANE:TIMESTAMP,\n\
         such as c0.2:1. Correct the value. Status 2.";
    Taken = "Q003": "address already in use",
        "Another process listens on the address that a replica, a gateway or the status page needs. The error names\n\
         the port, and the process if it is known. Stop that process, or choose another port.\n\n\
         To change the port of a replica, change `listen` in its node.toml, and its line in the table [replicas] in the\n\
         node.toml of every node. To change the port of a client, change `listen` in its node.toml, and repeat\n\
         `quorate add-client` for it. Status 2.";
    Rule = "Q004": "conflicting settings",
        "A setting conflicts with another setting or with a rule. The error names the key, its value and the rule.\n\
         Settings that must be the same at every node are in cluster.toml: node.toml must not have another value.\n\n\
         The most common rule is n >= 3f + 1: n replicas tolerate f Byzantine ones only if n is large enough. So f = 1\n\
         needs 4 replicas, and f = 2 needs 7. Change one of the settings. Status 2.";
    Scenario = "Q005": "no such scenario",
        "The simulator has no scenario with this name. `quorate sim list` prints all names, with the faults of\n\
         docs/faults.md that each one covers. Status 2.";
    Recording = "Q006": "unreadable recording",
        "The recording is missing, damaged, or was made by another version. A recording holds only the inputs of a\n\
         replica, so only the version that made it can replay it. Replay it with that version. Status 2.";
    Violation = "Q007": "a checker found a violated invariant",
        "An invariant was violated in a simulated run. The output names the invariant, the step, the replica and the\n\
         command that repeats the run. The same seed, scenario, size and code always give the same run. If the replica\n\
         is correct, this is a bug in quorate: please report it with the seed. Status 1.";
    Stuck = "Q008": "a run did not finish",
        "A request was not executed in time, although the faults had stopped and a quorum of correct replicas was\n\
         connected. The output names the seed and what each replica waits for. This is a bug in quorate: please report it\n\
         with the seed. Status 1.";
    Setting = "Q009": "no such setting",
        "A settings key is unknown or missing. The error names the nearest existing key. For a node, the keys are in\n\
         node.toml and cluster.toml, where `quorate init` writes each one with a description. For a simulation, they\n\
         are listed by `quorate sim run --help`. Unknown keys are never ignored. Status 2.";
    Absent = "Q010": "the run has no such step, replica or request",
        "`quorate sim replay` shows the step, replica or request that --from, --show or --request names. The run does not\n\
         have it. A step may come after the last one of the run. Check the number, or omit the flag. Status 2.";
    Output = "Q011": "cannot write output",
        "The command cannot write its output or its results. The error names the file and the cause. Check its\n\
         permissions and the free disk space. Status 1.";
    Exposed = "Q012": "key file accessible to other users",
        "Other users of this machine can read or write the node's secret key. A person with this key can act as the\n\
         node. Restrict the file with chmod 600. If other people had a login on this machine, treat the key as stolen, and\n\
         the node as Byzantine. Status 2.";
    Unknown = "Q013": "no such error code",
        "Codes have the form Q001. `quorate explain` lists all of them. Status 2.";
    NoExperiment = "Q014": "no such experiment",
        "There is no experiment with this name. `quorate bench list` prints all names, with the table or figure of the\n\
         papers that each one repeats. Status 2.";
    Bound = "Q015": "a statement of an experiment does not hold",
        "A measured figure is outside its bound. The output names the statement, the figure and the bound. A busy\n\
         machine or too few cores can be the cause: check the load and the pinning in the output, and repeat the\n\
         run on an idle machine. If other programs used more than 20 % of the machine, statements about measured\n\
         times cannot be judged, whether they hold or not. Status 1.";
    Experiment = "Q016": "an experiment could not run",
        "A process of the experiment failed, or the machine lacks something that it needs. The error says which.\n\
         Install what is missing, and run the experiment again. Status 1.";
    Unreadable = "Q017": "missing or unreadable file of a node",
        "The error names the file, and nothing was changed. cluster.toml is the same on every node: copy it from\n\
         another one. node.toml can be written again by hand. Status 2.";
    Unwritable = "Q018": "directory or file not writable",
        "Check the permissions, the free disk space, and whether the file system is mounted read-only. Nothing was\n\
         changed. Status 2.";
    WrongKey = "Q019": "damaged key, or key of another node",
        "The secret key does not match the public key of this node in cluster.toml. Restore the key from a backup.\n\
         Without the right key the node cannot take part, and counts as one of the f faulty ones. Status 2.";
    OtherFormat = "Q020": "files of another version",
        "This version cannot read the files. Nothing was changed. Run the version that wrote them. A replica can also\n\
         start without them: move its log/ and checkpoint/ away, and it rejoins from the other replicas. Do this for\n\
         at most f replicas at a time. Status 2.";
    Occupied = "Q021": "target already exists",
        "The directory or client that the command would create already exists. Existing keys are never overwritten.\n\
         Choose another directory or name, or move the old one away. Status 2.";
    InUse = "Q022": "another process uses this directory",
        "Two processes with one identity would contradict each other, as a Byzantine replica does. Stop the other\n\
         process first. Status 2.";
    Disk = "Q023": "disk failed or full",
        "The replica cannot write to its disk. It acknowledges nothing that it cannot store, and the other replicas\n\
         continue. After a failed fsync it stops, because the content of the disk is then unknown.\n\n\
         Free space on the disk, or replace it. If the replica has stopped, start it again. It checks whether its state is\n\
         complete. Status 1.";
    Network = "Q024": "network or system error",
        "The system refused a socket, a thread, a signal or a process that the command needs. The error names it.\n\
         Check the limits of this user and the addresses of this machine. Status 1.";
    Unreachable = "Q025": "cluster unreachable",
        "The cluster is not running, or more than f replicas are down or unreachable. With durability = \"sync\", no\n\
         acknowledged operation is lost, unless disks were lost. Start the missing replicas: with `quorate up` for a cluster\n\
         on this machine, otherwise with `quorate replica` on each machine. The log of each replica says what it waits for.\n\
         Status 3.";
    WrongReplies = "Q031": "evidence: f + 1 replicas contradict a replica's replies",
        "This replica answered an operation differently from f + 1 others, which agree with each other. The client used\n\
         the answer of the others. The evidence comes from a client: believe it only if you trust that client.\n\n\
         1. Compare the settings of the replicas. `quorate doctor` does so if the directories of several replicas are on\n\
         \x20\x20\x20one machine.\n\
         2. If the settings are equal, the replica has damaged state or a damaged program, or it is compromised. Check its\n\
         \x20\x20\x20machine. Then stop the replica, empty its log/ and checkpoint/, and start it: it rejoins.\n\
         3. If new evidence appears afterwards, treat the machine as compromised, and replace it. Status 1.";
    Diverged = "Q032": "evidence: a replica's state differs from f + 1 others at the same checkpoint",
        "The state of this replica has another digest than the state of f + 1 others. `quorate status` reports this until\n\
         16 newer checkpoints have been taken.\n\n\
         1. Compare the settings of the replicas. `quorate doctor` does so if the directories of several replicas are on\n\
         \x20\x20\x20one machine.\n\
         2. If the settings are equal, wait. A replica that finds damage in its state fetches the state from the others, and\n\
         \x20\x20\x20agrees again at the next checkpoint.\n\
         3. If it continues to differ, follow Q031. Other causes are another version of the program, and a service that is\n\
         \x20\x20\x20not deterministic. Status 1.";
    Equivocates = "Q033": "evidence: a replica has made two contradicting statements",
        "For example, it made two proposals for one sequence number. f + 1 replicas report it, so at least one correct\n\
         replica saw it. A correct replica contradicts itself in three cases only: two processes run with its identity, it\n\
         was started on a stale disk, or it lost its disk during a view change. If none of them is the cause, follow Q031.\n\
         Status 1.";
    BadMac = "Q034": "evidence: bytes from a replica's address fail authentication",
        "This is not evidence of misbehaviour by the replica: the network may have damaged the bytes, or a third party may\n\
         have forged the address. A few such frames are harmless.\n\n\
         If they continue, check that cluster.toml is the same on this machine and on the replica's machine, and find out\n\
         which other machine can send from that address. Status 1.";
    TooMany = "Q044": "more faults than the cluster tolerates",
        "A cluster of n = 3f + 1 replicas tolerates f faulty ones. If one more replica crashes, the cluster stops until a\n\
         replica is healed. With durability = \"sync\", it loses no data. If one more replica is Byzantine, answers can be\n\
         wrong. Heal a replica first, or give --yes-break-it to see the effect. Status 2.";
    Demo = "Q045": "the demo found lost or wrong data",
        "An acknowledged value is missing or wrong, or the cluster stopped although only f replicas were faulty. This\n\
         is a bug in quorate, unless another program wrote to the same cluster during the demo. The directory is kept,\n\
         with the log of each replica in replica.log: please report it. Status 1.";
    NoRight = "Q046": "permission denied",
        "The client's rights do not allow this, and nothing was changed. A client has one of three rights: read; read\n\
         and write; or administrator, who can also add and remove clients. cluster.toml names the first administrators.\n\
         Use another client's directory, or have an administrator run `quorate add-client` with other rights. Status 2.";
    NoClient = "Q047": "not a client of this cluster",
        "The client was removed, or not added yet. Nothing was changed. `quorate add-client` adds a client to a\n\
         running cluster. Status 2.";
    NoFile = "Q050": "file system operation failed",
        "The error says why, in the usual terms: no such file, file exists, directory not empty. The failed call\n\
         changed nothing. A full file system is Q055, missing permissions are Q056. Status 1.";
    Damaged = "Q051": "damaged file system",
        "`quorate fs fsck` found damage in a replica's state, or this state is not the one on which the replicas agreed.\n\
         Check another replica, too.\n\n\
         If both replicas have the same findings, this is a bug in quorate: please report it. Otherwise the state or the\n\
         program of the first replica is damaged. Empty its log/ and checkpoint/, and start it: it fetches the state from the\n\
         others. Status 1.";
    NoFuse = "Q052": "cannot mount through FUSE",
        "`quorate mount` needs the following:\n\n\
         - the kernel module fuse: modprobe fuse\n\
         - the device /dev/fuse, also in a container\n\
         - permission to open this device: udev gives it to all users. Without udev: chmod 666 /dev/fuse\n\
         - for users other than root, the program fusermount3 of the package fuse3\n\n\
         Without FUSE, use `quorate fs`, or the kernel's NFS client with `quorate nfs`. Status 2.";
    Timestamps = "Q053": "cannot tell which timestamps the client has used",
        "A client must never use a timestamp twice. The file keys/time in its directory holds a number above all\n\
         timestamps that it has used. This file is damaged, or its number is too high. Nothing was changed.\n\n\
         Write a number into this file that is above all timestamps that the client can have used. Normally, the current\n\
         time in nanoseconds since 1970 is high enough: date +%s%N. If the client has used the highest possible timestamp,\n\
         add a new client. Status 2.";
    NoRoom = "Q055": "file system full",
        "The file system has reached a limit: its pages (fs_capacity), its files (fs_inodes_max), or the quota of one user\n\
         (fs_quota_bytes, fs_quota_inodes). The error names the limit, and `quorate fs df` prints the usage. You can still\n\
         read and remove files.\n\n\
         The limits are fixed when the cluster first starts. To raise them, copy the files to a new cluster. Status 1.";
    Denied = "Q056": "file permission denied",
        "The replicas check permissions, for your user and groups on this machine. The setting fs_exports in cluster.toml can\n\
         restrict them further: it can make root an ordinary user, an export read-only, or admit only some networks. The\n\
         address of a client is `listen` in its node.toml. Nothing was changed. Status 1.";
    OtherState = "Q062": "state in the format of an earlier version",
        "The last replies to clients are part of the state and have a new format in this version. Nothing was changed.\n\
         Run the version that wrote the state, copy the data out (quorate fs cp, quorate kv), and write it into a new\n\
         cluster of this version. Status 2.";
    TableFull = "Q063": "no room for another lane of this client",
        "Replicas keep the last reply to each lane of each client, so that they execute nothing twice. A client has at most\n\
         client_lanes_max lanes. All clients together have at most clients_max lanes, of which an eighth (at most 1024) is\n\
         reserved for administrators and replicas. A lane that is idle for a minute makes room. Nothing was changed.\n\
         Status 1.";
}

impl Code {
    /// The exit status of a command that fails with this code.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The status in the text is the exit status.
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
