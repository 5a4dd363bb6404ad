//! A bank that no f of its machines can falsify.
use quorate::{Call, Map, Operation, Service, State};

/// The whole replicated state.
#[derive(State)]
struct Bank<'a> {
    balance: Map<'a, String, u64>,
}

#[rustfmt::skip]
#[derive(Operation)]
enum Op {
    Open { name: String, amount: u64 },
    Pay { from: String, to: String, amount: u64 },
    #[read_only] Balance { name: String },
}

impl Service for Bank<'_> {
    type Operation = Op;
    type Reply = Result<u64, String>; // an Err undoes every write of this call

    fn execute(&mut self, op: &Op, _call: &Call) -> Self::Reply {
        match op {
            Op::Balance { name } => self.balance.get(name).ok_or(format!("no account {name}")),
            Op::Open { name, .. } if self.balance.contains(name) => Err(format!("{name} exists")),
            Op::Open { name, amount } => self.change(name, |_| Some(*amount)),
            Op::Pay { from, to, amount } => {
                self.change(to, |old| old?.checked_add(*amount))?;
                self.change(from, |old| old?.checked_sub(*amount))
            }
        }
    }
}

impl Bank<'_> {
    fn change(&mut self, name: &String, to: impl Fn(Option<u64>) -> Option<u64>) -> Result<u64, String> {
        let new = to(self.balance.get(name)).ok_or(format!("{name} cannot do that"))?;
        self.balance.insert(name, &new);
        Ok(new)
    }
}

quorate::main!(Bank);

#[test]
fn liars_cannot_falsify_it() -> Result<(), quorate::sim::Failure> {
    quorate::sim::check::<Bank>(1..=12).map(|_| ())
}
