//! Values that contain others of their type.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use quorate::service::{Answer, Typed};
use quorate::{Call, Cell, Operation, Service, State, Value, value};
use quorate_service::{Alone, Options};

#[derive(Debug, Default, Clone, PartialEq, Value)]
enum Doc {
    #[default]
    Null,
    List {
        items: Vec<Self>,
    },
}

#[derive(State)]
struct Library<'a> {
    doc: Cell<'a, Doc>,
}

#[derive(Debug, Operation)]
enum Op {
    /// Puts the document into a list.
    Wrap,
    /// Replies with the document in a list, in one more.
    #[read_only]
    Show,
}

impl Service for Library<'_> {
    type Operation = Op;
    type Reply = Doc;

    fn execute(&mut self, op: &Op, _call: &Call) -> Doc {
        let list = |doc: Doc| Doc::List { items: vec![doc] };
        match op {
            Op::Wrap => self.doc.set(&list(self.doc.get())),
            Op::Show => return list(list(self.doc.get())),
        }
        Doc::Null
    }
}

/// L83: a service cannot store, or reply with, a value that nobody can decode.
#[test]
fn l83_a_deep_value_is_refused() {
    let mut alone = Alone::new(Typed::<Library>::new(), &Options::default()).unwrap();
    let mut ask = |op: &Op| {
        let mut out = Vec::new();
        alone.execute(1, &value::encode(op), &mut out);
        Answer::decode(&out).unwrap()
    };
    let refused = || Answer::Refused("a value is nested too deeply".to_owned());
    let most = value::DEPTH_MAX / 2 - 1;
    for depth in 0..most {
        assert_eq!(ask(&Op::Show) == refused(), depth > most - 2, "{depth}");
        assert_eq!(ask(&Op::Wrap), Answer::Reply(Doc::Null));
    }
    assert_eq!(ask(&Op::Wrap), refused());
    assert_eq!(ask(&Op::Wrap), refused(), "the state can still be read");
    assert_eq!(ask(&Op::Show), refused());
}

/// L83: all replicas refuse the same, and so does the double in memory.
#[test]
fn l83_replicas_agree_on_what_is_refused() {
    let report = quorate::sim::check::<Library>(1..=4).unwrap();
    assert!(report.replied("Wrap") > 0 && report.refused("Wrap") > 0, "{report}");
}
