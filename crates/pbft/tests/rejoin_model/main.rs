//! An exhaustive search of rejoins and view changes, over the real decision code (RC-11 to RC-11c, DP-7).
//!
//! Messages are a set that only grows: what was signed or voted once can arrive at any time, or never. One number, the
//! target, is voted on in full; of the others only the order matters, so agreement below the target is assumed (induction
//! over numbers). K is 1. A liar has said everything: its vote counts for whatever is asked, and its VIEW-CHANGEs are all
//! those that help a NEW-VIEW. What a NEW-VIEW can say is asked of [`quorate_pbft::decision::check`], whether a view would
//! complete of [`quorate_pbft::decision::decide`].
//!
//! Reductions, each of which limits what is shown: a replica turns liar right after the last rejoin (it can act correctly
//! until it lies); RECOVERY is never at the target; leaving a view is always possible (more than the protocol allows);
//! timers, bodies and the contents of requests are not modelled; a correct new primary may choose whatever the conditions
//! admit, but once in each life and view; states are told apart by 64-bit fingerprints.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test may panic; numbers are small"
)]

mod case;
mod decisions;
mod messages;
mod search;
mod state;
mod steps;

use case::{Case, Rules};
use quorate_wire::Cluster;
use search::{Verdict, search};
use steps::Step;

/// Fails with the steps that led there, unless the search ends as expected.
#[track_caller]
fn expect(case: &Case, start: &[Step], good: impl Fn(Verdict) -> bool) {
    let found = search(case, start);
    let trace = found.trace.join("\n  ");
    assert!(good(found.verdict), "{}: {:?} after\n  {trace}", case.name, found.verdict);
    if std::env::var_os("QUORATE_MODEL_TRACES").is_some() && !trace.is_empty() {
        println!("  {trace}");
    }
}

fn holds(verdict: Verdict) -> bool {
    verdict == Verdict::Holds
}

fn broken(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Broken { .. })
}

/// Says whether the whole of each space is to be searched, which takes hours: `QUORATE_MODEL=long`. Otherwise one replica
/// loses its disk and one or two others may lie.
fn long() -> bool {
    std::env::var_os("QUORATE_MODEL").is_some_and(|value| value == "long")
}

/// Any replica loses its disk, then any lies; or, in a short search, r2 does, then r1 or r3.
fn any(name: &'static str) -> Case {
    let case = Case::new(name);
    if long() { case } else { Case { wiped: 0b100, later_liars: 0b1010, ..case } }
}

fn without(name: &'static str, rules: Rules) -> Case {
    Case { rules, ..any(name) }
}

/// S1: before there were lives, a VIEW-CHANGE from before a wipe broke agreement.
#[test]
fn s1_an_old_view_change_breaks_agreement_without_lives() {
    expect(&without("without lives: a wipe, then a liar", Rules::BEFORE), &[], broken);
}

/// S1: two rejoins one after the other do it without any liar: r2's, then r3's.
#[test]
fn s1_two_rejoins_break_agreement_without_lives() {
    let case = Case { wiped: 0b1100, ..two_rejoins("without lives: two rejoins, no liar", 0) };
    let start = [
        Step::Leave(2, 1),
        Step::Wipe(2),
        Step::Commit { seq: 1, recovery: Some((2, 0)) },
        Step::Commit { seq: 2, recovery: None },
    ];
    expect(&Case { rules: Rules::BEFORE, ..case }, if long() { &[] } else { &start }, broken);
}

/// RC-11: any replica loses its disk and rejoins, then any replica lies.
#[test]
fn a_wipe_then_a_liar() {
    expect(&Case { liveness: true, ..any("a wipe, then a liar") }, &[], holds);
}

/// The same with a window of two, where the target can be voted on before its predecessor has committed.
#[test]
fn a_wipe_then_a_liar_with_a_window_of_two() {
    let case = Case { window: 2, target: 4, last: 3, ..any("a wipe, then a liar, L = 2") };
    expect(&case, &[], holds);
}

/// RC-11, DP-7: r2 executes late, r1 and r2 learn late of stable checkpoints, and r2 restarts.
#[test]
fn a_wipe_then_a_liar_beside_a_backup_that_lags() {
    let case = Case {
        lag: 0b100,
        late: 0b110,
        restarts: true,
        ..Case::new("a wipe, then a liar; r2 lags and restarts")
    };
    let wiped = if long() { 0b1011 } else { 0b1000 };
    expect(&Case { wiped, later_liars: 0b0011, liveness: true, ..case }, &[], holds);
}

/// The same with one view more.
#[test]
fn a_wipe_then_a_liar_in_three_views() {
    let case = Case { views: 2, states_max: 400_000_000, ..Case::new("a wipe, then a liar, views to 2") };
    if long() {
        return expect(&case, &[], holds);
    }
    // r2 leaves for view 1, loses its disk and rejoins there; r3 lies, as primary of no view; r0 stays where it is.
    let start = [
        Step::Leave(2, 1),
        Step::Wipe(2),
        Step::Commit { seq: 1, recovery: Some((2, 0)) },
        Step::TurnLiars(0b1000),
    ];
    let case = Case { name: "r2 rejoins, then r3 lies, views to 2", movers: 0b0110, ..case };
    expect(&Case { wiped: 0b100, later_liars: 0b1000, ..case }, &start, holds);
}

fn two_rejoins(name: &'static str, later: u8) -> Case {
    let wiped = if long() { 0b1100 } else { 0b0100 };
    Case { target: 5, last: 4, wipes: 2, wiped, later, ..any(name) }
}

/// RC-11: r2 or r3 loses its disk twice, or one after the other; then a liar.
#[test]
fn two_rejoins_then_a_liar() {
    expect(&two_rejoins("two rejoins, then a liar", 1), &[], holds);
}

/// RC-11: r3 lies, is healed, and then another replica lies: what r3 signed is still there.
#[test]
fn a_healed_liar_then_another() {
    expect(&healed_liar("a healed liar, then another", Rules::ALL), &[], holds);
}

fn healed_liar(name: &'static str, rules: Rules) -> Case {
    Case { liars: 0b1000, wiped: 0b1000, later_liars: 0b0111, rules, ..Case::new(name) }
}

/// RC-11: a life that can be guessed is no life: the intruder signs for the next one before it is healed.
#[test]
fn a_life_that_can_be_guessed_breaks_agreement() {
    let rules = Rules { unguessable: false, ..Rules::ALL };
    expect(&healed_liar("lives can be guessed: a healed liar, then another", rules), &[], broken);
}

/// L125, RC-6: the liar has signed a RECOVERY, too, and for the life that this opens. It is executed after the healed replica
/// has rejoined, or before.
#[test]
fn l125_a_recovery_of_a_liar_opens_no_life_after_the_rejoin() {
    let later_liars = if long() { 0b0111 } else { 0b0001 };
    let case = |name, rules| Case {
        target: 4,
        last: 3,
        signed_recovery: true,
        later_liars,
        ..healed_liar(name, rules)
    };
    let rules = Rules { names_newest: false, ..Rules::ALL };
    expect(&case("a healed liar and its RECOVERY: whatever life this names", rules), &[], broken);
    expect(&case("a healed liar and its RECOVERY, then another", Rules::ALL), &[], holds);
}

/// RC-11a has no other test than a backup that lags behind a rejoin, and at n = 4 none can: all of the other three vote
/// for `H_R`. r5 has signed for view 1, loses its disk and rejoins; r4 has executed nothing; r1 lies.
#[test]
fn a_backup_that_lags_needs_the_check_before_each_vote() {
    let rules = Rules { vote: false, ..Rules::ALL };
    let (case, start) = six("n = 6, r4 lags: without the check before each vote", rules);
    expect(&case, &start, broken);
    let (case, start) = six("n = 6, r4 lags", Rules::ALL);
    expect(&case, &start, holds);
}

fn six(name: &'static str, rules: Rules) -> (Case, Vec<Step>) {
    let case = Case {
        cluster: Cluster::new(6, 1).unwrap(),
        views: 2,
        wiped: 0b10_0000,
        later_liars: 0b10,
        lag: 0b1_0000,
        movers: 0b1_0101,
        rules,
        ..Case::new(name)
    };
    let start = vec![
        Step::Leave(5, 1),
        Step::Wipe(5),
        Step::Commit { seq: 1, recovery: Some((5, 0)) },
        Step::TurnLiars(0b10),
    ];
    (case, start)
}

/// The same at f = 2: r6 has signed for view 1 and rejoined, r4 lags, r1 and r2 lie.
#[test]
fn with_two_liars_a_backup_that_lags_needs_the_check_before_each_vote() {
    let rules = Rules { vote: false, ..Rules::ALL };
    let (case, start) = seven("n = 7, r4 lags: without the check before each vote", rules);
    expect(&case, &start, broken);
    let (case, start) = seven("n = 7, r4 lags", Rules::ALL);
    expect(&case, &start, holds);
}

fn seven(name: &'static str, rules: Rules) -> (Case, Vec<Step>) {
    let case = Case {
        cluster: Cluster::tolerating(2).unwrap(),
        views: 2,
        wiped: 0b100_0000,
        later_liars: 0b110,
        later: 2,
        lag: 0b1_0000,
        movers: if long() { 0b11_1001 } else { 0b11_0001 },
        rules,
        ..Case::new(name)
    };
    let start = vec![
        Step::Leave(6, 1),
        Step::Wipe(6),
        Step::Commit { seq: 1, recovery: Some((6, 0)) },
        Step::TurnLiars(0b110),
        Step::Leave(5, 1),
        Step::Leave(4, 1),
    ];
    (case, start)
}

/// RC-9a: a healed liar, a backup that lags and replicas that learn late of stable checkpoints, with a window of two. The
/// target has committed with the first liar's vote, above the number of the liar's RECOVERY.
#[test]
fn a_healed_liar_beside_a_backup_that_lags_needs_a_quorum_that_is_stable() {
    let rules = Rules { quorum_stable: false, ..Rules::ALL };
    let (case, start) = healed_beside_lag("n = 6, healed liar, r4 lags: rejoined by its own h", rules);
    expect(&case, &start, broken);
    let (case, start) = healed_beside_lag("n = 6, healed liar, r4 lags", Rules::ALL);
    expect(&case, &start, holds);
}

fn healed_beside_lag(name: &'static str, rules: Rules) -> (Case, Vec<Step>) {
    let case = Case {
        cluster: Cluster::new(6, 1).unwrap(),
        window: 2,
        target: 2,
        last: 3,
        views: 2,
        liars: 0b10_0000,
        wiped: 0b10_0000,
        later_liars: 0b10,
        lag: 0b1_0000,
        late: 0b1_1101,
        movers: 0b1_0101,
        rules,
        ..Case::new(name)
    };
    let mut start = vec![Step::Propose(0), Step::PrePrepare(1, 1), Step::PrePrepare(2, 1)];
    start.extend([0, 1, 2].map(Step::Prepare));
    start.extend([Step::Wipe(5), Step::Commit { seq: 1, recovery: Some((5, 0)) }]);
    start.extend([0, 2, 3].map(Step::Learn));
    start.push(Step::Commit { seq: 2, recovery: None });
    // With its own h alone, r5 has rejoined when 3 has committed, and r1 may lie.
    let last = Step::Commit { seq: 3, recovery: None };
    start.push(if rules.quorum_stable { last } else { Step::TurnLiars(0b10) });
    start.extend([Step::Leave(3, 1), Step::Leave(4, 1)]);
    if !long() {
        start.extend([Step::Leave(0, 1), Step::Leave(0, 2), Step::Leave(2, 1), Step::Leave(2, 2)]);
    }
    (case, start)
}

/// L151, RC-11c: r7 has signed for view 1, where r2 and r3 are, loses its disk and rejoins: in view 1, as its floor is, while
/// the others work in view 0. It restarts. Eight replicas are the fewest of which five can work below the floor of a sixth.
#[test]
fn l151_a_restart_after_a_rejoin_must_not_forget_the_view() {
    let rules = Rules { records_view: false, ..Rules::ALL };
    let (case, start) = eight("n = 8, r7 restarts: without a record of its view", rules);
    expect(&case, &start, broken);
    let (case, start) = eight("n = 8, r7 restarts", Rules::ALL);
    expect(&case, &start, holds);
}

fn eight(name: &'static str, rules: Rules) -> (Case, Vec<Step>) {
    let case = Case {
        cluster: Cluster::new(8, 1).unwrap(),
        wiped: 0b1000_0000,
        later_liars: 0b10,
        movers: 0b1001_1100,
        rejoined_restarts: 0b1000_0000,
        rules,
        ..Case::new(name)
    };
    let mut start: Vec<Step> = [2, 3, 7].map(|i| Step::Leave(i, 1)).into();
    start.extend([Step::Wipe(7), Step::Commit { seq: 1, recovery: Some((7, 1)) }]);
    start.push(Step::TurnLiars(0b10));
    if !long() {
        start.push(Step::Restart(7));
    }
    (case, start)
}

/// L14, DP-7: a primary whose NEW-VIEW reaches above its own window cannot claim what it fixed; when the liar whose vote
/// it needed falls silent, one correct claim is left, and no view can decide.
#[test]
fn l14_a_primary_that_cannot_vote_for_all_of_x_blocks_the_next_view() {
    let blocked = |verdict| matches!(verdict, Verdict::Blocked { .. });
    let later_liars = if long() { 0b1111 } else { 0b1000 };
    let late = |name, rules| Case {
        wiped: 0b1000,
        later_liars,
        late: 0b110,
        liveness: true,
        rules,
        ..Case::new(name)
    };
    let rules = Rules { can_vote_for_all: false, ..Rules::ALL };
    expect(&late("r1 and r2 learn late: without DP-7", rules), &[], blocked);
    expect(&late("r1 and r2 learn late", Rules::ALL), &[], holds);
}
