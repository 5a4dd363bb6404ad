//! Messages in flight in a script: in which order they arrive, which are lost, which are held.

use quorate_wire::Kind;

use crate::network::{Flight, NodeId};

/// Which messages: of a kind, from these nodes, to those; empty or none stands for any.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    pub(super) kind: Option<Kind>,
    pub(super) from: Vec<NodeId>,
    pub(super) to: Vec<NodeId>,
}

impl Links {
    fn hold(&self, flight: &Flight) -> bool {
        let any_or = |nodes: &[NodeId], node| nodes.is_empty() || nodes.contains(&node);
        self.kind.is_none_or(|kind| kind_of(flight) == Some(kind))
            && any_or(&self.from, flight.from)
            && any_or(&self.to, flight.to)
    }
}

/// Returns the kind of message, where the frame is one.
pub(super) fn kind_of(flight: &Flight) -> Option<Kind> {
    flight.frame.get(3).and_then(|byte| Kind::from_wire(*byte).ok())
}

/// The fate of messages on some links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// They get lost.
    Drop,
    /// They are kept until they are asked for, or the network heals.
    Hold,
    /// They arrive, whatever the rules before this one say. What is kept stays so.
    Pass,
}

/// Everything that has been sent and has not arrived, and for reference all that was ever sent: a script
/// is short.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    flying: Vec<Flight>,
    kept: Vec<Flight>,
    rules: Vec<(Rule, Links)>,
    /// Messages of this kind get lost, always.
    silent: Option<Kind>,
    sent: Vec<Flight>,
}

impl Traffic {
    /// Loses messages of this kind, whatever the rules are.
    pub(super) fn silence(&mut self, kind: Kind) {
        self.silent = Some(kind);
    }

    /// Takes a message that has been sent.
    pub(super) fn send(&mut self, flight: Flight) {
        if self.silent.is_some() && self.silent == kind_of(&flight) {
            return;
        }
        self.sent.push(flight.clone());
        match self.rules.iter().rev().find(|(_, links)| links.hold(&flight)) {
            Some((Rule::Drop, _)) => {}
            Some((Rule::Hold, _)) => self.kept.push(flight),
            Some((Rule::Pass, _)) | None => self.flying.push(flight),
        }
    }

    /// Makes a rule for what is on its way and for what will be. The last rule that fits counts.
    pub(super) fn rule(&mut self, rule: Rule, links: Links) {
        let concerned = |flight: &mut Flight| links.hold(flight);
        match rule {
            Rule::Drop => self.flying.retain_mut(|flight| !concerned(flight)),
            Rule::Hold => self.kept.extend(self.flying.extract_if(.., concerned)),
            Rule::Pass => {}
        }
        self.rules.push((rule, links));
    }

    /// Ends all rules; what was kept is on its way again.
    pub(super) fn heal(&mut self) {
        self.rules.clear();
        self.flying.append(&mut self.kept);
    }

    /// Returns when the next message arrives.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.flying.iter().map(|flight| flight.at).min()
    }

    /// Takes the next message: of those that arrive at one moment the one for the first receiver, and of
    /// those the one of the first sender.
    pub(super) fn next(&mut self) -> Option<Flight> {
        let keys = self.flying.iter().enumerate();
        let first = keys.min_by_key(|(i, f)| (f.at, f.to, f.from, *i)).map(|(i, _)| i)?;
        Some(self.flying.remove(first))
    }

    /// Takes the messages on these links that are on their way or kept now, in the order of arrival.
    pub(super) fn take(&mut self, links: &Links) -> Vec<Flight> {
        let mut taken: Vec<Flight> = self.flying.extract_if(.., |flight| links.hold(flight)).collect();
        if links.kind.is_some() || !links.from.is_empty() || !links.to.is_empty() {
            taken.extend(self.kept.extract_if(.., |flight| links.hold(flight)));
        }
        taken.sort_by_key(|flight| (flight.to, flight.from));
        taken
    }

    /// Returns everything that was ever sent, the last first.
    pub(super) fn history(&self) -> impl Iterator<Item = &Flight> {
        self.sent.iter().rev()
    }

    /// Returns the last message on these links, whatever became of it.
    pub(super) fn last(&self, links: &Links) -> Option<Flight> {
        self.history().find(|flight| links.hold(flight)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(at: u64, from: u16, to: u16) -> Flight {
        let frame = vec![0, 0, 0, Kind::Commit.to_wire()].into();
        Flight { at, from: NodeId(from), to: NodeId(to), frame }
    }

    fn order(traffic: &mut Traffic) -> Vec<(u16, u16)> {
        std::iter::from_fn(|| traffic.next()).map(|f| (f.from.0, f.to.0)).collect()
    }

    #[test]
    fn messages_of_one_moment_arrive_by_receiver_and_sender() {
        let mut traffic = Traffic::default();
        for (at, from, to) in [(2, 0, 1), (1, 2, 1), (1, 1, 0), (1, 0, 1)] {
            traffic.send(flight(at, from, to));
        }
        assert_eq!(order(&mut traffic), [(1, 0), (0, 1), (2, 1), (0, 1)]);
    }

    #[test]
    fn rules_hold_for_what_is_on_its_way_and_what_will_be() {
        let to = |node| Links { to: vec![NodeId(node)], ..Links::default() };
        let mut traffic = Traffic::default();
        traffic.send(flight(1, 0, 1));
        traffic.send(flight(1, 0, 2));
        traffic.rule(Rule::Drop, to(1));
        traffic.rule(Rule::Hold, to(2));
        traffic.send(flight(2, 3, 1));
        traffic.send(flight(2, 3, 2));
        assert_eq!(order(&mut traffic), []);
        assert_eq!(traffic.take(&Links::default()).len(), 0, "what is kept is asked for by name");
        assert_eq!(traffic.take(&to(2)).len(), 2);
        traffic.send(flight(3, 3, 2));
        traffic.heal();
        assert_eq!(order(&mut traffic), [(3, 2)]);
    }
}
