//! Follows one request through all replicas: the lines of a trace that concern it (style §12).

use quorate_wire::{ClientId, Timestamp};

use crate::trace::{Line, What};

/// Returns the lines about a request: its own messages, and those about the number at which it was
/// executed, from the last proposal for that number before its first execution on.
pub fn request(lines: Vec<Line>, client: ClientId, timestamp: Timestamp) -> Vec<Line> {
    let (who, t) = (client.to_string(), format!("t={}", timestamp.0));
    let own = |line: &Line| match &line.what {
        What::Sent { to, text } => {
            has(text, &t) && (line.who == who || *to == who) || {
                // Passed on, or asked about.
                has(text, &t) && has(text, &who)
            }
        }
        What::Milestone(text) => line.who == who && has(text, &t),
        What::Executed(_) | What::Fault(_) => false,
    };
    let started = lines.iter().find(|line| own(line)).map_or(u64::MAX, |line| line.step);
    let ended = lines.iter().rev().find(|line| own(line)).map_or(0, |line| line.step);
    // The client has one request at a time: what is executed for it in between is this one.
    let executed = lines.iter().find_map(|line| match &line.what {
        What::Executed(text) if line.step >= started && line.step <= ended => {
            let mut words = text.split_whitespace();
            let number = words.next()?;
            (words.next()? == who).then(|| number.to_owned())
        }
        What::Executed(_) | What::Sent { .. } | What::Milestone(_) | What::Fault(_) => None,
    });
    let about = |line: &Line| match (&executed, &line.what) {
        (Some(number), What::Sent { text, .. } | What::Milestone(text)) => {
            line.step >= started && has(text, number)
        }
        (Some(number), What::Executed(text)) => has(text, number) && has(text, &who),
        _ => false,
    };
    lines.into_iter().filter(|line| own(line) || about(line)).collect()
}

/// Returns whether one of the words of `text` is `word`, with or without a bracket around it.
fn has(text: &str, word: &str) -> bool {
    text.split([' ', '(', ')', '{', '}']).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, who: &str, what: What) -> Line {
        Line { step, at: 0, who: who.to_owned(), what }
    }

    fn sent(to: &str, text: &str) -> What {
        What::Sent { to: to.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_request_is_followed_to_its_number_and_back() {
        let lines = vec![
            line(1, "c0", sent("r0", "REQUEST     t=1 \"put x 1\"")),
            line(1, "c1", sent("r0", "REQUEST     t=1 \"put y 1\"")),
            line(2, "r0", sent("*", "PRE-PREPARE v=0 n=7 d=ec39")),
            line(3, "r1", sent("*", "PREPARE     v=0 n=7 d=ec39 +commit(n=6 d=0001)")),
            line(3, "r1", sent("*", "PREPARE     v=0 n=70 d=ec39")),
            line(4, "r1", What::Executed("n=7 c0 put x 1 -> ok".to_owned())),
            line(4, "r1", sent("c0", "REPLY       t=1 v=0 ok")),
            line(5, "c0", What::Milestone("accepts t=1 ok".to_owned())),
            line(6, "c0", sent("r0", "REQUEST     t=2 \"put x 2\"")),
        ];
        let steps: Vec<(u64, String)> = request(lines, ClientId::new(1, 0), Timestamp(1))
            .into_iter()
            .map(|line| (line.step, line.who))
            .collect();
        let expected = [(1, "c0"), (2, "r0"), (3, "r1"), (4, "r1"), (4, "r1"), (5, "c0")];
        assert_eq!(steps, expected.map(|(step, who)| (step, who.to_owned())));
    }
}
