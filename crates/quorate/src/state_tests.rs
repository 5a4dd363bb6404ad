//! Maps and tables over both storages, beside those of the standard library.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use quorate_service::{Alone, Context, Options};

use super::*;
use crate::key::Key;
use crate::value::Dice;
use crate::{Map, Record, Table};

/// A service whose only operation is a test.
struct Tested<F>(F);

impl<F: Fn(Pages<'_>) + Sync> quorate_service::Service for Tested<F> {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn execute(
        &self,
        _cx: Context,
        _operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let paged = Paged::new(state);
        (self.0)(Pages::new(&paged));
        assert_eq!(paged.trouble(), None);
        out.push(1);
        Ok(())
    }
}

/// Runs a test on a state in memory, and on one in the pages of a replica.
fn on_both(test: impl Fn(Pages<'_>) + Sync) {
    test(Pages::new(&InMemory::default()));
    let mut out = Vec::new();
    let changed = Alone::new(Tested(test), &Options::default()).unwrap().execute(1, &[], &mut out);
    assert!(changed && out == [1]);
}

#[test]
fn a_map_minds_its_own_keys() {
    on_both(|pages| {
        let mut ages: Map<'_, String, u64> = Map::open(pages, 0);
        let mut names: Map<'_, i32, String> = Map::open(pages, 1);
        let mut count: Cell<'_, u64> = Cell::open(pages, 2);
        let (ann, bob) = ("ann".to_owned(), "bob".to_owned());
        assert_eq!(
            (ages.insert(&bob, &7), ages.insert(&ann, &8), ages.insert(&bob, &9)),
            (None, None, Some(7))
        );
        for number in [3, -1, 0] {
            names.insert(&number, &ann);
        }
        count.set(&5);
        assert_eq!((ages.len(), names.len(), count.get()), (2, 3, 5));
        assert_eq!(ages.iter().collect::<Vec<_>>(), [(ann.clone(), 8), (bob.clone(), 9)]);
        assert_eq!(names.iter().map(|(number, _)| number).collect::<Vec<_>>(), [-1, 0, 3]);
        assert_eq!((ages.remove(&ann), ages.remove(&ann), ages.get(&ann)), (Some(8), None, None));
        assert!(ages.contains(&bob) && !ages.is_empty());
        ages.remove(&bob);
        assert!(ages.is_empty() && !names.is_empty());
        assert_eq!((ages.first(), ages.last()), (None, None));
        assert_eq!((names.first(), names.last()), (Some((-1, ann.clone())), Some((3, ann.clone()))));
    });
}

type Pair = (String, i8);

/// Draws a key: one of few.
fn key(dice: &mut Dice) -> Pair {
    (String::draw(dice), i8::try_from(dice.below(5)).unwrap() - 2)
}

fn bound(dice: &mut Dice) -> Bound<Pair> {
    match dice.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(dice)),
        _ => Bound::Excluded(key(dice)),
    }
}

/// Whether a range is one that the standard library takes. The others are empty here.
fn is_range((start, end): &(Bound<Pair>, Bound<Pair>)) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(start), Bound::Excluded(end)) => start < end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start <= end
        }
    }
}

#[test]
fn ranges_and_prefixes_are_those_of_an_ordered_map() {
    on_both(|pages| {
        let mut map: Map<'_, Pair, u64> = Map::open(pages, 7);
        // Its neighbours begin where it ends.
        let mut before: Map<'_, u64, u64> = Map::open(pages, 6);
        let mut after: Map<'_, u64, u64> = Map::open(pages, 8);
        before.insert(&u64::MAX, &1);
        after.insert(&0, &1);
        let (mut model, mut dice) = (BTreeMap::new(), Dice::new(9));
        for step in 0..600 {
            match dice.below(4) {
                0 => {
                    let key = key(&mut dice);
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                1 if step % 40 == 0 => {
                    let range = (bound(&mut dice), bound(&mut dice));
                    let kept =
                        |key: &Pair| !(is_range(&range) && std::ops::RangeBounds::contains(&range, key));
                    let count = model.len();
                    model.retain(|key, _| kept(key));
                    assert_eq!(map.remove_range(range.clone()), u64::try_from(count - model.len()).unwrap());
                }
                _ => {
                    let key = key(&mut dice);
                    assert_eq!(map.insert(&key, &step), model.insert(key, step));
                }
            }
            let range = (bound(&mut dice), bound(&mut dice));
            let expected: Vec<(Pair, u64)> = if is_range(&range) {
                model.range(range.clone()).map(|(key, value)| (key.clone(), *value)).collect()
            } else {
                Vec::new()
            };
            assert_eq!(map.range(range.clone()).collect::<Vec<_>>(), expected);
            let mut back: Vec<_> = map.range(range.clone()).rev().collect();
            back.reverse();
            assert_eq!(back, expected);
            // From both ends in turns, each entry comes once.
            let (mut entries, mut found) = (map.range(range), BTreeSet::new());
            while let Some(entry) = if dice.below(2) == 0 { entries.next() } else { entries.next_back() } {
                assert!(found.insert(entry));
            }
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
            let name = String::draw(&mut dice);
            let expected: Vec<Pair> = model.keys().filter(|(of, _)| *of == name).cloned().collect();
            assert_eq!(map.prefix(&name).map(|(key, _)| key).collect::<Vec<_>>(), expected);
            assert_eq!(map.len(), u64::try_from(model.len()).unwrap());
            assert_eq!(map.first().map(|(key, _)| key), model.keys().next().cloned());
            assert_eq!(map.last().map(|(key, _)| key), model.keys().next_back().cloned());
        }
        assert_eq!((before.len(), after.len()), (1, 1));
    });
}

/// Texts are keys by their bytes: also by those that end in the highest one.
#[test]
fn a_prefix_of_texts_ends_where_it_should() {
    on_both(|pages| {
        let mut map: Map<'_, Vec<u8>, ()> = Map::open(pages, u32::MAX);
        for key in [&b"a"[..], b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"] {
            map.insert(&key.to_vec(), &());
        }
        let with = |prefix: &[u8]| map.prefix(prefix).count();
        assert_eq!((with(b""), with(b"a"), with(b"a\xff"), with(b"\xff"), with(b"c")), (6, 3, 2, 2, 0));
    });
}

#[derive(Debug, Clone, PartialEq, crate::Value)]
struct Job {
    owner: String,
    due: u8,
    tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, crate::Key)]
enum By {
    Owner { name: String },
    Due { at: u8 },
    Tag { tag: String },
}

impl Record for Job {
    type Index = By;

    fn indexes(&self) -> Vec<By> {
        let tags = self.tags.iter().map(|tag| By::Tag { tag: tag.clone() });
        tags.chain([By::Owner { name: self.owner.clone() }, By::Due { at: self.due }]).collect()
    }
}

#[test]
fn a_table_finds_what_is_in_it_and_nothing_else() {
    on_both(|pages| {
        let mut table: Table<'_, Pair, Job> = Table::open(pages, 3);
        let (mut model, mut dice) = (BTreeMap::<Pair, Job>::new(), Dice::new(4));
        for _ in 0..400 {
            let key = key(&mut dice);
            if dice.below(3) == 0 {
                assert_eq!(table.remove(&key), model.remove(&key));
            } else {
                let job = Job {
                    owner: String::draw(&mut dice),
                    due: u8::try_from(dice.below(4)).unwrap(),
                    tags: Vec::draw(&mut dice),
                };
                assert_eq!(table.insert(&key, &job), model.insert(key, job));
            }
            let all = |is: &dyn Fn(&Job) -> bool| -> Vec<(Pair, Job)> {
                model.iter().filter(|(_, job)| is(job)).map(|(key, job)| (key.clone(), job.clone())).collect()
            };
            let name = String::draw(&mut dice);
            let owned: Vec<_> = table.by(&By::Owner { name: name.clone() }).collect();
            assert_eq!(owned, all(&|job| job.owner == name));
            let tagged: Vec<_> = table.by(&By::Tag { tag: name.clone() }).collect();
            assert_eq!(tagged, all(&|job| job.tags.contains(&name)));
            let due = |from: u8, to: u8| -> Vec<(u8, Pair)> {
                let mut due: Vec<_> = model
                    .iter()
                    .filter(|(_, job)| (from..=to).contains(&job.due))
                    .map(|(key, job)| (job.due, key.clone()))
                    .collect();
                due.sort();
                due
            };
            let found = |range: (Bound<By>, Bound<By>)| -> Vec<(u8, Pair)> {
                let found = table.by_range(range);
                found
                    .map(|(index, key, job)| {
                        (if index == (By::Due { at: job.due }) { job.due } else { 99 }, key)
                    })
                    .collect()
            };
            let at = |at: u8| By::Due { at };
            assert_eq!(found((Bound::Included(at(1)), Bound::Included(at(2)))), due(1, 2));
            assert_eq!(found((Bound::Excluded(at(0)), Bound::Excluded(at(3)))), due(1, 2));
            assert_eq!(found((Bound::Included(at(1)), Bound::Excluded(at(2)))), due(1, 1));
            assert_eq!(table.iter().collect::<Vec<_>>(), all(&|_| true));
            assert_eq!(table.len(), u64::try_from(model.len()).unwrap());
        }
        // Nothing is left behind of records that are gone.
        for key in model.keys() {
            table.remove(key);
        }
        assert_eq!(table.by_range(..).count(), 0);
    });
}

#[test]
fn derived_keys_have_the_order_of_their_variants_and_fields() {
    let keys = [
        By::Owner { name: String::new() },
        By::Owner { name: "a\0b".to_owned() },
        By::Owner { name: "ab".to_owned() },
        By::Due { at: 0 },
        By::Due { at: 255 },
        By::Tag { tag: "a".to_owned() },
    ];
    let encoded = keys.iter().map(|key| {
        let mut bytes = Vec::new();
        key.encode_key(&mut bytes);
        assert_eq!(By::decode_key(&bytes).as_ref(), Some(key));
        bytes
    });
    assert!(encoded.collect::<Vec<_>>().is_sorted());
    assert_eq!(By::decode_key(&[3]), None);
    assert_eq!(By::decode_key(&[1, 0, 0]), None);
}
