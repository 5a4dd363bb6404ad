//! The verdict, as a table: what is known, and what may be said of it.

use quorate_wire::Digest;
use quorate_wire::message::Contradiction;

use super::*;

const NOW_S: u64 = 1_000_000;

/// What is the matter with a replica, as far as it can be seen.
#[derive(Clone, Copy, Debug)]
pub(in crate::observe) enum Is {
    Well,
    Silent,
    Joining,
    Rejoining,
    /// Without space on its disk.
    Full,
    /// Behind by this number of batches.
    Behind(u64),
    /// Its clock, in milliseconds.
    Clock(u64),
    /// The lanes in use, of 100.
    Lanes(u32),
    /// Its newest digest is another one.
    Other(u8),
    /// It states settings with another digest; its newest digest is another one, too.
    Set(u64),
    /// It says of this replica that it contradicted itself, this number of milliseconds ago.
    Accuses(u16, u64),
    /// A client has seen this of it, this number of seconds ago.
    Seen(Class, u64),
}
use Is::{Accuses, Behind, Clock, Full, Joining, Lanes, Other, Rejoining, Seen, Set, Silent, Well};

pub(in crate::observe) fn reading(is: &[Is]) -> Reading {
    let n = u16::try_from(is.len()).unwrap();
    let cluster = Cluster::new(n, (n - 1) / 3).unwrap();
    let mut evidence = Vec::new();
    let statement = |is: &Is| {
        let digest = |fill| Digest([fill; 32]);
        let mut says = Statement {
            view: ViewNum(5),
            executed: SeqNum(300),
            stable: (SeqNum(256), digest(7)),
            checkpoints: vec![(SeqNum(128), digest(7)), (SeqNum(256), digest(7))],
            settings: vec![0, 7],
            ..Statement::default()
        };
        match *is {
            Silent => return None,
            Well | Seen(..) => {}
            Joining => (says.transferring, says.transfer) = (true, (58, 100)),
            Rejoining => says.rejoining = true,
            Full => says.disk_full = true,
            Clock(ms) => says.clock_ms = ms,
            Lanes(used) => says.lanes = (used, 100),
            Behind(batches) => says.executed = SeqNum(300 - batches),
            Other(fill) => says.checkpoints[1].1 = digest(fill),
            Set(_) => {
                says.checkpoints[1].1 = digest(9);
                says.settings = vec![0, 8];
            }
            Accuses(by, age_ms) => {
                says.contradictions = vec![Contradiction { by: ReplicaId(by), count: 3, age_ms }];
            }
        }
        Some(says)
    };
    for (is, id) in is.iter().zip(0..) {
        if let Seen(class, age) = is {
            let (first, last) = (NOW_S - age - 9, NOW_S - age);
            let by = "client-0".to_owned();
            evidence.push(Item { class: *class, replica: ReplicaId(id), count: 31, first, last, by });
        }
    }
    let statements = is.iter().map(statement).collect();
    let settings = is.iter().map(|is| Some(if let Set(digest) = is { *digest } else { 1 })).collect();
    Reading { cluster, statements, settings, evidence, outcomes: ProbeOutcomes::default(), now_s: NOW_S }
}

fn words(picture: &Picture) -> Vec<&'static str> {
    picture.replicas.iter().map(|replica| replica.word.name()).collect()
}

/// What is the matter with each replica; the words, the verdict, and the margins.
type Case<'a> = (&'a [Is], &'a [&'a str], Verdict, usize, usize);

#[test]
fn l20_the_verdict_follows_from_what_is_known() {
    use Verdict::{Degraded, Halted, Healthy, Unsafe};
    let wrong = Seen(Class::WrongReplies, 3);
    let cases: &[Case<'_>] = &[
        (&[Well; 4], &["ok"; 4], Healthy, 1, 1),
        // One that stops or joins is one of the f that may stop; it has not lied.
        (&[Well, Silent, Well, Well], &["ok", "silent", "ok", "ok"], Degraded, 0, 1),
        (&[Well, Well, Full, Well], &["ok", "ok", "disk full", "ok"], Degraded, 0, 1),
        (&[Well, Well, Full, Silent], &["ok", "ok", "disk full", "silent"], Halted, 0, 1),
        (&[Well, Well, Well, Joining], &["ok", "ok", "ok", "rejoining"], Degraded, 0, 1),
        (&[Well, Well, Well, Rejoining], &["ok", "ok", "ok", "rejoining"], Degraded, 0, 1),
        // A little behind is nothing; behind what the others keep is.
        (&[Well, Well, Behind(5), Well], &["ok"; 4], Healthy, 1, 1),
        (&[Well, Well, Behind(45), Well], &["ok", "ok", "slow", "ok"], Degraded, 0, 1),
        // One that lies uses up both margins.
        (&[Well, Well, wrong, Well], &["ok", "ok", "wrong replies", "ok"], Degraded, 0, 0),
        (&[Well, Other(1), Well, Well], &["ok", "diverged", "ok", "ok"], Degraded, 0, 0),
        // Other settings explain another state: they are named, not a lie. Until they are equal, it counts like a liar.
        (&[Well, Well, Well, Set(2)], &["ok", "ok", "ok", "settings differ"], Degraded, 0, 0),
        (&[Set(2), Well, Well, Silent], &["settings differ", "ok", "ok", "silent"], Degraded, 0, 0),
        (&[Well, Well, Set(2), Set(2)], &["ok", "ok", "settings differ", "settings differ"], Unsafe, 0, 0),
        // A broken MAC may be the network's, and costs no margin.
        (&[Well, Well, Seen(Class::BadMac, 1), Well], &["ok", "ok", "bad mac", "ok"], Degraded, 1, 1),
        // Old evidence is history.
        (&[Well, Well, Seen(Class::WrongReplies, FRESH_S + 1), Well], &["ok"; 4], Healthy, 1, 1),
        // Two that stop halt it, and nobody has lied.
        (&[Silent, Silent, Well, Well], &["silent", "silent", "ok", "ok"], Halted, 0, 1),
        (&[Silent; 4], &["silent"; 4], Halted, 0, 1),
        // One lies and one has stopped: it may go on, with nothing in reserve.
        (&[Well, Silent, wrong, Well], &["ok", "silent", "wrong replies", "ok"], Degraded, 0, 0),
        // More than f are proven wrong.
        (&[wrong, Well, Other(1), Well], &["wrong replies", "ok", "diverged", "ok"], Unsafe, 0, 0),
        // Two values, each with f + 1 behind it.
        (&[Other(1), Other(1), Well, Well], &["ok", "ok", "diverged", "diverged"], Unsafe, 0, 0),
        // Three opinions prove nothing about anyone.
        (&[Other(1), Other(2), Other(3), Well], &["ok"; 4], Healthy, 1, 1),
        // A clock that is an hour off: it votes for nothing, whatever else it says. Which it is, the others say.
        (
            &[Clock(9_000_000), Clock(9_000_300), Clock(12_600_000), Clock(9_000_600)],
            &["ok", "ok", "clock-off", "ok"],
            Degraded,
            0,
            1,
        ),
        (&[Clock(9_000), Clock(9_300), Clock(11_000), Clock(9_900)], &["ok"; 4], Healthy, 1, 1),
        // Two clocks say nothing about one another.
        (&[Clock(9_000), Clock(90_000), Silent, Well], &["ok", "ok", "silent", "ok"], Degraded, 0, 1),
        // The client table is full, as f + 1 say.
        (&[Lanes(100), Lanes(100), Well, Well], &["ok"; 4], Degraded, 1, 1),
        (&[Lanes(100), Lanes(99), Lanes(99), Lanes(99)], &["ok"; 4], Healthy, 1, 1),
        // f = 2.
        (
            &[Well, Well, wrong, Silent, Well, Well, Well],
            &["ok", "ok", "wrong replies", "silent", "ok", "ok", "ok"],
            Degraded,
            0,
            1,
        ),
    ];
    for (is, expected, verdict, may_stop, may_lie) in cases {
        let picture = judge(reading(is));
        assert_eq!(words(&picture), *expected, "{is:?}");
        assert_eq!(
            (picture.verdict, picture.may_stop, picture.may_lie),
            (*verdict, *may_stop, *may_lie),
            "{is:?}"
        );
    }
}

/// Never accuse without evidence: f replicas that accuse another may be the liars themselves.
#[test]
fn f_accusers_accuse_nobody() {
    let lone = judge(reading(&[Accuses(2, 100), Well, Well, Well]));
    assert_eq!((words(&lone), lone.evidence.len()), (vec!["ok"; 4], 0));
    let own = judge(reading(&[Accuses(2, 100), Well, Accuses(2, 100), Well]));
    assert_eq!(words(&own), ["ok"; 4], "nobody testifies about itself");
    let two = judge(reading(&[Accuses(2, 100), Accuses(2, 4000), Well, Well]));
    assert_eq!(words(&two), ["ok", "ok", "equivocates", "ok"]);
    let item = &two.evidence[0];
    assert_eq!(
        (item.class, item.count, item.last, item.by.as_str()),
        (Class::Equivocates, 3, NOW_S - 4, "r0 r1")
    );
    let old = judge(reading(&[Accuses(2, 100), Accuses(2, 61_000), Well, Well]));
    assert_eq!(words(&old), ["ok"; 4], "one of them alone says that it was just now");
}

/// What a liar says of itself moves nothing: a view or number counts when f + 1 reach it.
#[test]
fn a_liar_names_neither_the_view_nor_the_lag() {
    let mut reading = reading(&[Well; 4]);
    if let Some(says) = &mut reading.statements[3] {
        (says.view, says.executed, says.stable.0) = (ViewNum(900), SeqNum(1 << 40), SeqNum(1 << 40));
    }
    let picture = judge(reading);
    assert_eq!(
        (picture.view, picture.primary(), picture.executed),
        (Some(ViewNum(5)), Some(ReplicaId(1)), SeqNum(300))
    );
    assert!(picture.replicas.iter().all(|replica| replica.behind == 0 && replica.word == Word::Ok));
}

#[test]
fn a_reader_that_gets_no_answer_says_so() {
    use ProbeOutcome::{NoPlace, Served, Silence};
    let with = |ordered, read_only, large| {
        let outcomes = ProbeOutcomes { ordered, read_only, large };
        let picture = judge(Reading { outcomes, ..reading(&[Well; 4]) });
        (picture.verdict, picture.may_stop, picture.troubles().join(", "))
    };
    let served = Some(Served);
    let troubled = |verdict, may_stop, text: &str| (verdict, may_stop, text.to_owned());
    assert_eq!(with(served, served, served), troubled(Verdict::Healthy, 1, ""));
    assert_eq!(with(None, None, None), troubled(Verdict::Healthy, 1, ""));
    assert_eq!(with(Some(Silence), None, None), troubled(Verdict::Halted, 0, "writes time out"));
    // What some clients do not get is trouble, although every replica says that it is well.
    let reads = with(served, Some(Silence), served);
    assert_eq!(reads, troubled(Verdict::Degraded, 0, "reads time out"));
    let large = with(served, served, Some(Silence));
    assert_eq!(large, troubled(Verdict::Degraded, 0, "large operations time out"));
    // A refusal is an answer: others are served.
    let refused = with(Some(NoPlace), Some(NoPlace), served);
    assert_eq!(refused, troubled(Verdict::Degraded, 1, "new lanes are refused"));
}

#[test]
fn margins_name_what_is_tolerated_or_what_is_needed() {
    let margins = |is: &[Is]| judge(reading(is)).margins();
    assert_eq!(margins(&[Well; 4]), "tolerates 1 more crash, 1 more Byzantine replica");
    assert_eq!(margins(&[Well, Silent, Well, Well]), "tolerates no more crashes, 1 more Byzantine replica");
    assert_eq!(margins(&[Silent, Silent, Well, Well]), "needs 1 more replica to serve again");
    assert_eq!(margins(&[Silent; 4]), "needs 3 more replicas to serve again");
}

/// With fewer than f + 1 answers every answer may be a lie, so no view is named.
#[test]
fn too_few_answers_name_no_view() {
    let view = |is: &[Is]| judge(reading(is)).view_text();
    assert_eq!(view(&[Silent; 4]), "view unknown");
    assert_eq!(view(&[Silent, Silent, Silent, Well]), "view unknown");
    assert_eq!(view(&[Silent, Silent, Well, Well]), "view 5, primary r1");
    let halted = judge(reading(&[Silent; 4]));
    assert!(super::super::text::line(&halted, None).starts_with("HALTED  view unknown | needs 3 more"));
    assert!(super::super::json::cluster(&halted)["view"].is_null());
}

/// Evidence about replicas outside the cluster is ignored.
#[test]
fn troubles_are_told_with_their_replica() {
    let mut reading = reading(&[Well, Well, Seen(Class::WrongReplies, 1), Joining]);
    reading.evidence.push(Item { replica: ReplicaId(9), ..reading.evidence[0].clone() });
    let picture = judge(reading);
    assert_eq!(picture.troubles(), ["r2 wrong replies", "r3 rejoining 58 %"]);
    assert_eq!(picture.evidence.len(), 1);
}

/// The setting itself is named, if both have the same version.
#[test]
fn a_setting_that_differs_is_named() {
    let second = shared_names().nth(1).unwrap();
    let picture = judge(reading(&[Well, Well, Well, Set(2)]));
    assert_eq!(picture.troubles(), [format!("r3 settings differ: {second}")]);
    // A setting that the digest does not cover.
    assert_eq!(judge(reading(&[Well, Well, Well, Set(1)])).replicas[3].differs, [second]);
    let mut other = reading(&[Well, Well, Well, Set(2)]);
    other.statements[3].as_mut().unwrap().version = "2".to_owned();
    assert_eq!(judge(other).troubles(), ["r3 settings differ"]);
    // While replicas are replaced one by one, those of an earlier version state no list: they do not differ.
    let mut old = reading(&[Well; 4]);
    old.statements.iter_mut().skip(2).flatten().for_each(|says| says.settings.clear());
    assert_eq!(judge(old).verdict, Verdict::Healthy);
}
