//! What a disk keeps, and what it does not.

use quorate_process::DiskQueue as _;
use quorate_process::storage::io::DiskIo as _;
use quorate_service::Options;
use quorate_service::kv::Kv;
use quorate_wire::{ClusterId, ReplicaId};

use super::side::DiskSide;
use super::*;

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };

/// A disk, and what a process knows of it.
struct Host {
    disk: Disk,
    side: DiskSide,
}

impl Host {
    fn new(seed: u64) -> Self {
        let mut disk = Disk::new(seed, 0, Pace::FAST, OWNER);
        let (side, past) = start(&mut disk).unwrap();
        assert!(matches!(past, Past::Nothing));
        Self { disk, side }
    }

    fn start(&mut self) -> Past {
        let (side, past) = start(&mut self.disk).unwrap();
        self.side = side;
        past
    }

    fn write(&mut self, range: core::ops::Range<u8>) {
        for i in range {
            self.side.append(Lsn(u64::from(i)), &[i; 24]);
        }
        self.side.pour(&mut self.disk, true);
    }

    /// Does what waits for the log's writer, but for the note of its end. Returns the last record that is durable.
    fn sync(&mut self) -> Option<Lsn> {
        let (serial, _) = self.disk.begin_log_job()?;
        match self.disk.end_log_job(serial) {
            Ended::Done(done) => done.durable,
            Ended::Void | Ended::Full(_) | Ended::Failed => None,
        }
    }
}

/// Starts a replica without state, and returns what its disk had.
fn start(disk: &mut Disk) -> Result<(DiskSide, Past), DiskError> {
    let options = Options { page_bytes: 512, pages_max: 4096, clients_max: 8, ..Options::default() };
    let options = Options { result_bytes_max: 512, ..options };
    let domains = Domains::new(OWNER.cluster);
    let store = disk.store(domains.clone(), 512, 16);
    let mut executor = Executor::with_store(Kv, domains, options, store);
    let (mut storage, past) = disk.open(Durability::Sync, 1_700_000_000)?;
    let copy = match &past {
        Past::Nothing => Past::Nothing,
        Past::Lost(why) => Past::Lost(why.clone()),
        Past::Log { records, cut } => Past::Log { records: records.clone(), cut: *cut },
    };
    let resume = storage.resume(past, 1, &mut executor)?;
    disk.begin(storage, &executor, &resume)?;
    Ok((DiskSide::new(disk, 0), copy))
}

/// H3: whatever a crash leaves of the tail, the promised records are there and it is no amnesia.
#[test]
fn a_torn_tail_is_cut_and_nothing_promised_is_lost() {
    for how in [PowerCut::Anytime, PowerCut::WithinWrite] {
        let (mut cuts, mut all) = (0, 0);
        for seed in 0..200 {
            let mut host = Host::new(seed);
            host.write(1..6);
            assert_eq!(host.sync(), Some(Lsn(5)));
            host.side.append(Lsn(6), &[6; 9000]);
            host.side.pour(&mut host.disk, true);
            host.disk.begin_log_job();
            host.disk.crash(how);
            let Past::Log { records, cut } = host.start() else { panic!("seed {seed}: amnesia") };
            assert!((5..=6).contains(&records.len()), "seed {seed}: {} records", records.len());
            assert!(records.iter().zip(1..).all(|(r, i)| r.iter().all(|byte| *byte == i)));
            cuts += u32::from(cut);
            all += u32::from(records.len() == 6);
            // It goes on where it was cut.
            assert_eq!(host.disk.starts(), 2);
            host.write(7..9);
            assert_eq!(host.sync(), Some(Lsn(8)));
            host.disk.crash(PowerCut::BeforeWrite);
            let Past::Log { records: more, cut: false } = host.start() else { panic!("seed {seed}") };
            assert_eq!(more.len(), records.len() + 2);
        }
        if how == PowerCut::WithinWrite {
            assert!(cuts > 180, "{cuts} of 200 crashes within a write left a torn tail");
        } else {
            assert!(cuts > 5 && all > 20, "{cuts} of 200 crashes left a torn tail, {all} all of it");
        }
    }
}

/// H4, H5: damage to something that later commits knew to be durable is never taken for a torn tail.
#[test]
fn damage_of_what_was_promised_is_noticed() {
    for how in [Damage::BitRot, Damage::Zeroed, Damage::Misdirected, Damage::Lost] {
        for seed in 0..60 {
            let mut host = Host::new(seed);
            for i in 1..60 {
                host.side.append(Lsn(i), &[9; 3000]);
                host.side.pour(&mut host.disk, true);
                assert_eq!(host.sync(), Some(Lsn(i)));
            }
            host.disk.crash(PowerCut::BeforeWrite);
            assert!(host.disk.damage(how));
            assert!(matches!(host.start(), Past::Lost(_)), "{how:?}, seed {seed}");
            // It is no memory before the replica has rejoined, and it is one after that.
            host.disk.crash(PowerCut::BeforeWrite);
            assert!(matches!(host.start(), Past::Lost(_)));
            host.side.rejoined();
            host.write(1..3);
            host.sync();
            host.sync();
            host.disk.crash(PowerCut::BeforeWrite);
            let Past::Log { records, .. } = host.start() else { panic!("{how:?}, seed {seed}") };
            assert_eq!(records.len(), 2);
        }
    }
}

/// H5, GC-4: a full disk acknowledges nothing, and a failed sync ends the process.
#[test]
fn a_full_disk_and_a_failing_one() {
    let mut host = Host::new(1);
    host.disk.set_space(Space::None);
    host.write(1..3);
    let (serial, _) = host.disk.begin_log_job().unwrap();
    assert!(matches!(host.disk.end_log_job(serial), Ended::Full(_)));
    host.disk.set_space(Space::Enough);
    let Ended::Done(done) = host.disk.end_log_job(serial) else { panic!("there is space") };
    assert_eq!(done.durable, Some(Lsn(2)));
    host.disk.set_failing(true);
    host.write(3..4);
    let (serial, _) = host.disk.begin_log_job().unwrap();
    assert!(matches!(host.disk.end_log_job(serial), Ended::Failed));
    host.disk.crash(PowerCut::BeforeWrite);
    let Past::Log { records, .. } = host.start() else { panic!("amnesia") };
    assert_eq!(records.len(), 2);
}

/// GC-4: a full disk makes room by a cut of the log. If a sync fails in that time, the process ends, too.
#[test]
fn a_sync_that_fails_while_a_full_disk_makes_room_ends_the_process() {
    let mut host = Host::new(1);
    let fill = |host: &mut Host, records: u64| {
        for i in 1..records {
            host.side.append(Lsn(i), &[9; 3000]);
            host.side.pour(&mut host.disk, true);
            assert_eq!(host.sync(), Some(Lsn(i)));
        }
    };
    fill(&mut host, 60);
    host.disk.inbox.cut_log(SeqNum(4));
    assert_eq!(host.sync(), None);
    fill(&mut host, 10);
    let spares = host.disk.files.list("log").unwrap();
    assert!(spares.iter().any(|file| file.starts_with("spare-")), "{spares:?}");
    host.write(1..3);
    host.disk.inbox.cut_log(SeqNum(4));
    host.disk.set_space(Space::None);
    host.disk.set_failing(true);
    let (serial, _) = host.disk.begin_log_job().unwrap();
    assert!(matches!(host.disk.end_log_job(serial), Ended::Failed));
}

/// GC-2: what comes during a sync makes the next commit. The end of the log is noted when nothing comes.
#[test]
fn a_commit_covers_what_was_written_before_it() {
    let mut host = Host::new(1);
    host.write(1..3);
    let (serial, _) = host.disk.begin_log_job().unwrap();
    host.write(3..4);
    assert_eq!(host.disk.begin_log_job(), None, "one job at a time");
    let Ended::Done(done) = host.disk.end_log_job(serial) else { panic!("it has space") };
    assert_eq!(done.durable, Some(Lsn(2)));
    assert_eq!(host.sync(), Some(Lsn(3)));
    let (note, took) = host.disk.begin_log_job().unwrap();
    assert!(took > QUIET_NS);
    // A record comes before.
    host.write(4..5);
    assert_eq!(host.sync(), Some(Lsn(4)));
    assert!(matches!(host.disk.end_log_job(note), Ended::Void));
    assert_eq!(host.sync(), None, "its end is noted");
    assert_eq!(host.disk.begin_log_job(), None);
}

/// H6, H7: a new disk and an old one.
#[test]
fn a_new_and_an_old_disk() {
    let mut host = Host::new(1);
    host.write(1..3);
    host.sync();
    let mut old = host.disk.snapshot();
    host.write(3..5);
    host.sync();
    host.disk.crash(PowerCut::Anytime);
    assert!(matches!(host.start(), Past::Log { .. }));
    // One of the same life is told by nothing on it: the count of starts gives it away to the others.
    assert!(matches!(start(&mut old).unwrap().1, Past::Log { .. }));
    assert_eq!((host.disk.starts(), old.starts()), (2, 2));
    host.disk.wipe();
    assert!(matches!(host.start(), Past::Lost(_)));
    assert_eq!(host.disk.starts(), 1_700_000_000, "the time of day stands in for a lost count");
}

/// GC-4: a replica that has rejoined while its disk is full notes that when there is space. It does not stop.
#[test]
fn d4_a_note_about_the_log_waits_for_space() {
    let mut host = Host::new(1);
    host.disk.crash(PowerCut::BeforeWrite);
    host.disk.wipe();
    assert!(matches!(host.start(), Past::Lost(_)));
    host.side.rejoined();
    host.side.pour(&mut host.disk, true);
    host.disk.set_space(Space::None);
    let (serial, _) = host.disk.begin_log_job().unwrap();
    assert!(matches!(host.disk.end_log_job(serial), Ended::Full(_)));
    host.disk.set_space(Space::Enough);
    let Ended::Done(done) = host.disk.end_log_job(serial) else { panic!("there is space") };
    assert_eq!(done.state, Some(LogState::Log));
}
