//! Faults of hosts, and their end: crashes, restarts, pauses, wrong clocks, damaged disks.

use std::collections::{BTreeMap, VecDeque};

use quorate_pbft::config::Durability;
use quorate_pbft::record::{self, Record};
use quorate_pbft::recording::Recorder;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Restart, Resume};
use quorate_process::storage::recover::Past;
use quorate_service::Queue;
use quorate_wire::codec::Reader;
use quorate_wire::digest::Domains;
use quorate_wire::message::Request;
use quorate_wire::{Batch, Digest, Principal, SeqNum, ViewNum, frame};

use super::{Event, World};
use crate::app::App;
use crate::checker::Violation;
use crate::disk::{Damage, Disk, Pace, Paged};
use crate::governed::Admission;
use crate::host::Process;
use crate::rng::{Concern, Rng};
use crate::trace::What;

/// Random bits below the count of starts in an incarnation (spec §14.3).
pub(super) const INCARNATION_RANDOM_BITS: u32 = 20;

/// The longest recording, in bytes.
const RECORDING_BYTES_MAX: usize = 1 << 30;

/// More than one life can ask for: the next one's numbers begin that far above (ST-3).
const RIDS_PER_LIFE: u64 = 1_000_000;

impl<A: App> World<A> {
    /// Starts a process on host `h` from what its disk holds.
    pub(crate) fn start_host(&mut self, h: usize) {
        self.hosts[h].life += 1;
        let seconds = self.now(h).wall_ns / 1_000_000_000;
        let (storage, past) = self.hosts[h].disk.open(self.config.durability, seconds);
        let chance = self.keys_rng.bits() >> (64 - INCARNATION_RANDOM_BITS);
        let incarnation = (storage.starts() << INCARNATION_RANDOM_BITS) | chance;
        let first_rid = self.now(h).wall_ns.max(self.hosts[h].key_time + RIDS_PER_LIFE);
        let mut executor = self.executor(h, first_rid);
        let initial = (SeqNum(0), executor.root_at(SeqNum(0)).unwrap_or_default());
        let before = self.hosts[h].disk.newest();
        let found = self.hosts[h].disk.begin(storage, &mut executor);
        let resume = match past {
            Past::Nothing => Resume::Fresh { incarnation },
            Past::Lost(why) => {
                let waited = self.config.durability == Durability::Sync && !self.hosts[h].amnesic;
                self.check_lost(h, waited, &why);
                self.lose_memory(h);
                Resume::Amnesia { incarnation }
            }
            Past::Log { records, cut } => {
                let checkpoint = found.unwrap_or(initial);
                let mut clients = Vec::new();
                executor.clients(&mut clients);
                clients.sort_unstable();
                let lives = executor.lives().unwrap_or_default();
                let host = &mut self.hosts[h];
                if found.is_some() {
                    self.counters.disk("images read");
                    host.amnesic &= !core::mem::take(&mut host.imageless);
                }
                if found.map(|(seq, _)| seq) < before {
                    self.counters.disk("images lost");
                    self.check_lost(h, true, "the newest image cannot be loaded");
                }
                self.remember(h, checkpoint.0, &records, cut);
                Resume::Restart(Restart { incarnation, records, checkpoint, clients, lives })
            }
        };
        self.start_process(h, executor, resume);
    }

    fn start_process(
        &mut self,
        h: usize,
        executor: quorate_service::Executor<A::Service, Paged>,
        resume: Resume,
    ) {
        let host = &self.hosts[h];
        let (id, life) = (host.id, host.life);
        // The same secrets for a replica's second copy, new ones for each life.
        let entropy = Rng::nth(self.seed ^ (u64::from(life) << 32), Concern::Keys, id.index()).bytes();
        let wall_ns = self.now(h).wall_ns.max(self.hosts[h].key_time + 1);
        let door = self.keys.door(Principal::Replica(id), self.config.cluster, entropy, wall_ns);
        self.hosts[h].key_time = door.key_time();
        let recorder = self
            .recorded
            .contains(&id)
            .then(|| Recorder::new(id, &self.config, &resume, RECORDING_BYTES_MAX));
        let core = self.core(h, resume);
        let mono = self.now(h).mono_ns;
        self.hosts[h].process = Some(Process {
            door,
            core,
            executor,
            // Whatever the state knows is news to a new authenticator.
            admission: Admission::NEW,
            deadlines: [None; quorate_pbft::Timer::COUNT],
            door_at: mono,
            wake_at: u64::MAX,
            outbox: BTreeMap::new(),
            durable: Lsn(0),
            tasks: Queue::default(),
            recorder,
            busy: false,
            flushing: None,
            flushed_at: 0,
        });
        self.admit_clients(h, true);
        let node = self.hosts[h].node;
        self.schedule(self.at, node, Event::Start { life });
    }

    /// A start finds that something is lost: a disk that only crashes have changed loses nothing that was waited for
    /// (D1, D5).
    fn check_lost(&mut self, h: usize, waited: bool, why: &str) {
        let host = &self.hosts[h];
        if waited && host.correct && !host.disk.is_spoiled() {
            let text = format!("{} starts from a disk that only crashes have changed: {why}", host.id);
            self.checkers.note(Err(Violation::new("durable (D1, D5)", text, &[host.id])));
        }
    }

    fn lose_memory(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        (host.amnesic, host.imageless) = (true, false);
        let id = host.id;
        if host.correct {
            self.checkers.forgot(id);
        }
        self.counters.fault("memory lost");
        self.tell(h, || What::Fault("has lost its memory".to_owned()));
    }

    /// Tells the checkers what a restarting replica knows.
    fn remember(&mut self, h: usize, checkpoint: SeqNum, records: &[Vec<u8>], cut: bool) {
        let host = &self.hosts[h];
        if !host.correct {
            return;
        }
        let domains = self.config.domains();
        let stable = records.iter().filter_map(|bytes| record::stable_of(bytes)).max().unwrap_or(checkpoint);
        let prepared: Vec<(SeqNum, ViewNum, Digest)> = records
            .iter()
            .filter_map(|bytes| match Record::decode(bytes) {
                Ok(Record::Prepared { view, seq, batch }) if seq > stable => {
                    Some((seq, view, batch_digest(batch, &domains)?))
                }
                Ok(Record::PreparedAgain { view, seq, digest }) if seq > stable => Some((seq, view, digest)),
                _ => None,
            })
            .collect();
        let view = records.iter().fold((ViewNum(0), true), |last, bytes| match Record::decode(bytes) {
            Ok(Record::ViewChange { view, .. }) if view > last.0 => (view, false),
            Ok(Record::NewView { view, .. }) if view >= last.0 => (view, true),
            _ => last,
        });
        self.checkers.restarted(host.id, (checkpoint, stable), view, &prepared);
        if let Some((promises, facts)) = self.checkers.disk(host.id) {
            promises.restarted(facts.id, checkpoint, records, &prepared);
        }
        if cut {
            self.counters.fault("torn tail");
        }
    }

    /// Kills the process on host `h`; what its disk had not made durable may be torn or gone.
    pub fn crash(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        if host.process.take().is_none() {
            return;
        }
        host.disk.crash();
        (host.missed, host.busy_until) = (None, 0);
        host.life += 1;
        // What nothing waited for is not trusted at the next start.
        host.amnesic |= self.config.durability != Durability::Sync;
        self.counters.fault("crash");
        self.tell(h, || What::Fault("crashes".to_owned()));
    }

    /// Kills the process on host `h`; nothing of what its disk had not made durable is there any more.
    pub fn lose_power(&mut self, h: usize) {
        self.hosts[h].disk.lose_tail();
        self.crash(h);
    }

    /// Lets the images of host `h` take `ns` nanoseconds each, or as long as its disk takes (H11).
    pub fn set_image_time(&mut self, h: usize, ns: Option<u64>) {
        self.hosts[h].image_ns = ns;
    }

    /// Starts the process on host `h` again, if it is down.
    pub fn restart(&mut self, h: usize) {
        if !self.hosts[h].is_up() {
            self.tell(h, || What::Fault("starts".to_owned()));
            self.start_host(h);
        }
    }

    /// Starts the process on host `h` again after `ns` nanoseconds.
    pub fn restart_later(&mut self, h: usize, ns: u64) {
        let node = self.hosts[h].node;
        self.schedule(self.at + ns, node, Event::Restart);
    }

    /// Stops the process on host `h` for `ns` nanoseconds, as SIGSTOP does (H2).
    pub fn pause(&mut self, h: usize, ns: u64) {
        let host = &mut self.hosts[h];
        if !host.is_up() || host.is_paused() {
            return;
        }
        (host.missed, host.away_since) = (Some(VecDeque::new()), self.at);
        let node = host.node;
        self.counters.fault("pause");
        self.tell(h, || What::Fault(format!("is paused for {} ms", ns / 1_000_000)));
        self.schedule(self.at + ns, node, Event::Resume);
    }

    /// Resumes a paused process, with everything that waits for it.
    pub fn resume(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        let node = host.node;
        let Some(missed) = host.missed.take() else { return };
        host.clock.away(host.away_since, self.at);
        self.tell(h, || What::Fault("goes on".to_owned()));
        for event in missed {
            self.schedule(self.at, node, event);
        }
        self.rewake(h);
    }

    /// Ends the lies of host `h`: its machine has been cleaned, and its disk is as it was. It is to be started.
    pub fn clean(&mut self, h: usize) {
        let id = self.hosts[h].id;
        self.counters.lies += self.hosts[h].process.as_ref().map_or(0, |process| process.core.lies());
        self.crash(h);
        self.liars.remove(&id);
        self.hosts[h].correct = true;
        self.checkers.cleaned(id);
        self.counters.fault("cleaned");
        self.tell(h, || What::Fault("lies no more".to_owned()));
    }

    /// Crashes host `h` and takes its disk away (H6).
    pub fn wipe(&mut self, h: usize) {
        self.crash(h);
        self.hosts[h].disk.wipe();
        self.hosts[h].amnesic = true;
        self.counters.fault("disk lost");
    }

    /// Crashes host `h` and damages its disk (H4, H5). Returns whether there was something to damage.
    pub fn damage(&mut self, h: usize, how: Damage) -> bool {
        self.crash(h);
        let done = self.hosts[h].disk.damage(how);
        if done {
            self.hosts[h].imageless |= how == Damage::ImageRot && !self.hosts[h].amnesic;
            self.hosts[h].amnesic = true;
            self.counters.fault(match how {
                Damage::BitRot => "bit rot",
                Damage::Zeroed => "zeroed record",
                Damage::Misdirected => "misdirected record",
                Damage::Lost => "lost record",
                Damage::ImageRot => "rotten image",
            });
        }
        done
    }

    /// Returns a copy of the disk of host `h`, as a snapshot of its machine would.
    pub fn snapshot(&mut self, h: usize) -> Disk {
        self.hosts[h].disk.snapshot()
    }

    /// Crashes host `h` and puts an old disk in (H7). One of the same life can't be told from the one
    /// that was there: the count of starts is what gives it away.
    pub fn put_back(&mut self, h: usize, disk: Disk) {
        self.crash(h);
        self.hosts[h].disk = disk;
        self.hosts[h].amnesic = true;
        self.hosts[h].old_disk = true;
        self.checkers.misled(self.hosts[h].id);
        self.counters.fault("old disk");
        self.tell(h, || What::Fault("has an old disk put in".to_owned()));
    }

    /// Flips a bit of a page of the state on the disk of host `h`, which runs on (H4).
    pub fn rot_page(&mut self, h: usize) {
        if self.hosts[h].disk.rot_page() {
            self.counters.disk("pages rotted");
        }
    }

    /// Sets the time of day of host `h` wrong, and lets its clock run fast or slow (H8).
    pub fn disturb_clock(&mut self, h: usize, offset_ns: i64, rate: u64) {
        let at = self.at;
        let clock = &mut self.hosts[h].clock;
        clock.jump(offset_ns);
        clock.set_rate(at, rate);
        self.counters.fault("clock");
        self.tell(h, || What::Fault(format!("clock off by {} ms, rate {rate}", offset_ns / 1_000_000)));
        self.rewake(h);
    }

    /// Sets the disk of host `h` fast or slow (H11).
    pub fn set_disk(&mut self, h: usize, pace: Pace) {
        self.hosts[h].disk.set_pace(pace);
        if pace == Pace::SLOW {
            self.counters.fault("slow disk");
        }
    }

    /// Fills the disk of host `h`, or makes room (GC-4).
    pub fn fill_disk(&mut self, h: usize, full: bool) {
        self.hosts[h].disk.set_full(full);
        if full {
            self.counters.fault("full disk");
        }
        self.settle(h);
    }

    /// A sync of host `h` fails: the process stops, and never tries that again (GC-4).
    pub fn fail_sync(&mut self, h: usize) {
        self.counters.fault("failed sync");
        self.crash(h);
    }

    /// Corrupts a page of the state of host `h` in memory (B21).
    pub fn damage_state(&mut self, h: usize, choice: u64) -> bool {
        let done = self.process(h).is_some_and(|process| process.executor.damage(choice));
        if done {
            self.checkers.damaged(self.hosts[h].id);
            self.counters.fault("damaged page");
            self.tell(h, || What::Fault("has a page of its state damaged".to_owned()));
        }
        done
    }

    /// Returns whether the state of host `h` is still damaged, as far as can be seen.
    pub(crate) fn is_suspect(&self, h: usize) -> bool {
        self.checkers.facts(self.hosts[h].id).damaged
    }

    /// Gives host `h` new session keys (KX-2).
    pub fn renew_keys(&mut self, h: usize) {
        let (entropy, wall) = (self.keys_rng.bytes(), self.now(h).wall_ns);
        if let Some(process) = self.process(h) {
            process.door.refresh(entropy, wall);
            let time = process.door.key_time();
            self.hosts[h].key_time = time;
        }
        self.counters.fault("new keys");
        self.settle(h);
    }

    /// Ends every fault: the network works, paused processes continue, crashed ones start, clocks are right, disks
    /// are fast and have space. Byzantine replicas continue to lie.
    pub fn heal(&mut self) {
        self.network.heal();
        for h in 0..self.hosts.len() {
            let at = self.at;
            self.resume(h);
            self.hosts[h].disk.set_pace(Pace::FAST);
            self.hosts[h].disk.set_full(false);
            self.hosts[h].image_ns = None;
            if self.hosts[h].clock.is_wrong() {
                self.hosts[h].clock.repair(at);
                self.rewake(h);
            }
            self.restart(h);
            self.settle(h);
        }
    }

    /// Reschedules the next wake-up, after the clock has changed.
    fn rewake(&mut self, h: usize) {
        if let Some(process) = self.process(h) {
            process.wake_at = u64::MAX;
        }
        self.settle(h);
    }

    /// Gives every node everyone's session keys, without the network.
    pub(crate) fn introduce(&mut self) {
        loop {
            let mut letters = Vec::new();
            for h in 0..self.hosts.len() {
                let mono = self.now(h).mono_ns;
                if let Some(process) = self.process(h) {
                    process.door.tick(mono, 0);
                    while let Some(letter) = process.door.take_outgoing() {
                        letters.push(letter);
                    }
                }
            }
            for client in &mut self.clients {
                client.door.tick(self.at, 0);
                while let Some(letter) = client.door.take_outgoing() {
                    letters.push(letter);
                }
            }
            if letters.is_empty() {
                return;
            }
            for (to, frame) in letters {
                self.introduce_one(to, &frame);
            }
        }
    }

    fn introduce_one(&mut self, to: Principal, bytes: &[u8]) {
        let Ok(frame) = quorate_wire::frame::Frame::decode(bytes) else { return };
        match to {
            Principal::Replica(id) => {
                for i in 0..self.addresses[id.index()].len() {
                    let h = self.addresses[id.index()][i].index();
                    let mono = self.now(h).mono_ns;
                    if let Some(process) = self.process(h) {
                        _ = process.door.admit(mono, frame);
                    }
                }
            }
            Principal::Client(_) => {
                let at = self.at;
                let holder = to.key_holder();
                let mut clients = self.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.door.own().key_holder() == holder) {
                    _ = client.door.admit(at, frame);
                }
            }
        }
    }
}

/// Returns the digest of a batch in a record, where it stands behind its length.
fn batch_digest(bytes: &[u8], domains: &Domains) -> Option<Digest> {
    let own = Reader::new(bytes).blob(frame::FRAME_BYTES_MAX).ok()?;
    let mut batch = Batch::default();
    let request = |bytes| Request::decode(&frame::Frame::decode(bytes)?, domains);
    batch.decode(&mut Reader::new(own), domains, request).ok()?;
    Some(batch.digest())
}
