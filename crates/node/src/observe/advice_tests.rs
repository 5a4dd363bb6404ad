//! What is said for each finding, in which order, and the command that helps.

use std::net::SocketAddr;

use super::super::model::judge;
use super::super::model::tests::{Is, reading};
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
        (&[Well, Well, Well, Seen(Class::WrongReplies, 300)], &["the evidence below is history"]),
    ] {
        let said = said(is);
        assert_eq!(said.len(), starts.len(), "{is:?}: {said:#?}");
        for (said, start) in said.iter().zip(starts) {
            assert!(said.starts_with(start), "{is:?}: {said:#?}");
        }
    }
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
