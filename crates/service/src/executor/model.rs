//! Execution compared with a plain model, along two paths through the same batches.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::tests::{Said, client, encoded, execute, executor, get, incr, value};
use super::*;
use crate::builtin::kv::Operation;
use crate::testing::Xorshift;

/// A plain model of what batches do: a map and each client's last request.
#[derive(Clone, Default)]
struct Model {
    values: BTreeMap<Vec<u8>, i64>,
    last: BTreeMap<ClientId, (u64, Vec<u8>)>,
}

impl Model {
    fn execute(&mut self, requests: &[(ClientId, u64, Vec<u8>)]) -> Vec<Said> {
        requests
            .iter()
            .map(|(client, timestamp, operation)| {
                match self.last.get(client) {
                    Some((last, _)) if timestamp < last => return (ReplyOutcome::Superseded, None),
                    Some((last, result)) if timestamp == last => {
                        return (ReplyOutcome::Repeated, Some(result.clone()));
                    }
                    _ => {}
                }
                let result = match Operation::decode(operation).unwrap() {
                    Operation::Incr { key, by } => {
                        let sum = self.values.entry(key.to_vec()).or_default();
                        *sum += by;
                        value(alloc::format!("{sum}").as_bytes())
                    }
                    Operation::Del { key } => {
                        alloc::vec![u8::from(self.values.remove(key).is_none())]
                    }
                    other @ (Operation::Get { .. }
                    | Operation::Put { .. }
                    | Operation::Cas { .. }
                    | Operation::Append { .. }) => unreachable!("the model knows no {other:?}"),
                };
                self.last.insert(*client, (*timestamp, result.clone()));
                (ReplyOutcome::Executed, Some(result))
            })
            .collect()
    }
}

fn some_batch(random: &mut Xorshift) -> Vec<(ClientId, u64, Vec<u8>)> {
    (0..random.below(6))
        .map(|_| {
            let key = [u8::try_from(random.below(50)).unwrap(); 40];
            let operation =
                if random.below(4) == 0 { encoded(&Operation::Del { key: &key }) } else { incr(&key, 1) };
            (client(random.below(12)), random.below(40), operation)
        })
        .collect()
}

fn borrowed(requests: &[(ClientId, u64, Vec<u8>)]) -> Vec<(ClientId, u64, &[u8])> {
    requests.iter().map(|(client, timestamp, operation)| (*client, *timestamp, &operation[..])).collect()
}

/// Two executors go through the same batches: one as they commit, the other tentatively, with batches
/// undone, with restarts from images and with checkpoints forgotten. A model goes along. (TE-2, TE-4,
/// I13, I15, I16, I17; B12, B17: the client table goes the way of the state.)
#[test]
fn b17_all_ways_through_the_same_batches_give_the_same_state() {
    for seed in 1..40 {
        let mut random = Xorshift::new(seed);
        let (mut plain, mut winding) = (executor(), executor());
        let mut model = Model::default();
        for seq in (1..=60).map(SeqNum) {
            let requests = some_batch(&mut random);
            while random.below(3) == 0 {
                let other = some_batch(&mut random);
                let expected = model.clone().execute(&other);
                assert_eq!(execute(&mut winding, &borrowed(&other), true), expected, "seed {seed} {seq:?}");
                winding.undo(SeqNum(seq.0 - 1));
            }
            let expected = model.execute(&requests);
            assert_eq!(execute(&mut plain, &borrowed(&requests), false), expected, "seed {seed} {seq:?}");
            assert_eq!(execute(&mut winding, &borrowed(&requests), true), expected, "seed {seed} {seq:?}");
            winding.undo(seq);
            winding.merge(seq);
            if seq.0 % 4 != 0 {
                continue;
            }
            let root = plain.checkpoint(seq);
            assert_eq!(winding.checkpoint(seq), root, "I16, seed {seed} {seq:?}");
            assert_eq!(winding.recompute(), root, "I17, seed {seed} {seq:?}");
            winding.discard(0, SeqNum(seq.0.saturating_sub(random.below(12))));
            if random.below(3) == 0 {
                let held: Vec<SeqNum> = plain.checkpoints().map(|(seq, _)| seq).collect();
                assert_eq!(held.last(), Some(&seq));
                let mut image = Vec::new();
                assert!(plain.image(seq, &mut image));
                winding = executor();
                assert_eq!(winding.restore(&image), Ok((seq, root)));
            }
            for (&client, (timestamp, result)) in &model.last {
                let cached = winding.cached(client).unwrap().unwrap();
                assert_eq!((cached.timestamp.0, cached.result), (*timestamp, Some(&result[..])));
            }
            for key in 0..50_u8 {
                let expected = model.values.get(&[key; 40][..]).map(|value| alloc::format!("{value}"));
                assert_eq!(get(&winding, &[key; 40]), expected.map(alloc::string::String::into_bytes));
            }
        }
    }
}
