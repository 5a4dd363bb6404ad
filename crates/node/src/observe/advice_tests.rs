//! What is said for each finding, in which order, and the command that helps.

use std::net::SocketAddr;

use super::super::model::tests::{Is, reading};
use super::super::model::{Reading, judge};
use super::super::probe::ProbeOutcomes;
use super::*;

fn said(is: &[Is]) -> Vec<String> {
    let addresses: Vec<SocketAddr> = (0..4).map(|i| SocketAddr::from(([10, 0, 0, 1 + i], 7000))).collect();
    let all = advice(&judge(reading(is)), &addresses);
    all.into_iter()
        .map(|Advice { what, command }| format!("{what} | {}", command.unwrap_or_default()))
        .collect()
}

#[test]
fn every_verdict_says_what_it_means_and_what_helps() {
    use Is::{Full, Joining, Other, Rejoining, Seen, Silent, Well};
    let wrong = Seen(Class::WrongReplies, 3);
    for (is, starts) in [
        (&[Well; 4][..], &[][..]),
        (
            &[Well, Silent, Well, Well],
            &["replica-1 is silent: check its process, and UDP and TCP 10.0.0.2:7000 | quorate replica"],
        ),
        (
            &[Well, Silent, Silent, Well],
            &[
                "2 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r1 or r2: one of them \
               is enough (r1 at 10.0.0.2:7000, r2 at 10.0.0.3:7000, UDP and TCP) | quorate replica --dir replica-1",
            ],
        ),
        (
            &[Full, Silent, Well, Well],
            &[
                "one replica does not answer: nothing is executed, and nothing acknowledged is lost. Start r1",
                "make room",
            ],
        ),
        // The gravest comes first.
        (&[Joining, wrong, Well, Well], &["r1 answers clients wrongly", "r0 fetches the state"]),
        (
            &[wrong, Other(9), Well, Well],
            &["more than f = 1 replicas contradict the others", "r0 answers", "r1 has another state"],
        ),
        (&[Well, Well, Rejoining, Well], &["r2 has the state, and votes after"]),
        (&[Well, Well, Well, Seen(Class::WrongReplies, 300)], &["the evidence is history"]),
    ] {
        let said = said(is);
        assert_eq!(said.len(), starts.len(), "{is:?}: {said:#?}");
        for (said, start) in said.iter().zip(starts) {
            assert!(said.starts_with(start), "{is:?}: {said:#?}");
        }
    }
}

/// Only of a healthy cluster nothing is said, apart from history. What is not served is said once.
#[test]
fn whatever_is_not_served_has_advice() {
    use ProbeOutcome::{NoPlace, Served, Silence};
    const KINDS: [Option<ProbeOutcome>; 4] = [None, Some(Served), Some(NoPlace), Some(Silence)];
    let of = |outcomes, is: &[Is]| advice(&judge(Reading { outcomes, ..reading(is) }), &[]);
    let past = Is::Seen(Class::WrongReplies, 300);
    for at in 0..KINDS.len().pow(3) {
        let (ordered, read_only, large) = (KINDS[at % 4], KINDS[at / 4 % 4], KINDS[at / 16]);
        let outcomes = ProbeOutcomes { ordered, read_only, large };
        let all = of(outcomes, &[Is::Well; 4]);
        assert_eq!(all.is_empty(), outcomes.all_served(), "{outcomes:?}: {all:?}");
        // TCP is not the cause of what UDP has, too.
        let is_of_tcp = all.iter().any(|one| one.what.contains("TCP"));
        assert_eq!(is_of_tcp, ordered != Some(Silence) && large == Some(Silence), "{outcomes:?}: {all:?}");
        let all = of(outcomes, &[past, Is::Well, Is::Well, Is::Well]);
        let is_over = all.iter().any(|one| one.what.contains("history"));
        assert_eq!(is_over, outcomes.all_served(), "{outcomes:?}: {all:?}");
    }
    let refused = ProbeOutcomes { ordered: Some(NoPlace), ..ProbeOutcomes::default() };
    let full = of(refused, &[Is::Lanes(100); 4]);
    assert_eq!(full.len(), 1, "{full:?}");
    assert_eq!(full[0].what, "the client table is full: 100 of 100 lanes; new ones are refused");
}

#[test]
fn a_wrong_clock_is_told_with_how_wrong_it_is() {
    let right = 1_700_000_000_000;
    let said = said(&[Is::Clock(right), Is::Clock(right), Is::Clock(right), Is::Clock(right - 3_600_000)]);
    assert_eq!(
        said,
        ["set the clock of replica-3 right (1h00m behind): it votes for nothing | chronyc makestep"]
    );
}
