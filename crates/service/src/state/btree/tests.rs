//! The tree against `BTreeMap`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use std::format;

use super::*;
use crate::state::space::StoreError;
use crate::testing::{Bench, Xorshift};

const PAGES: u32 = 3000;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn tree(view: &View<'_>) -> Tree {
    Tree::new((0, 8), Space::new(view, (0, 0), 1))
}

/// A key from a small set, of very different lengths and with long common beginnings.
fn some_key(random: &mut Xorshift, keys: u64) -> Vec<u8> {
    let number = random.below(keys);
    let mut key = format!("{:03}", number % 1000).into_bytes();
    match number % 4 {
        0 => {}
        1 => key.splice(0..0, [b'a'; 60]).for_each(drop),
        2 => key.extend_from_slice(&[b'z'; 75]),
        _ => key.insert(0, u8::try_from(number % 7).unwrap()),
    }
    key
}

fn some_value(random: &mut Xorshift) -> Vec<u8> {
    let len = match random.below(10) {
        0..=5 => random.below(30),
        6..=8 => random.below(300),
        _ => random.below(4000),
    };
    let byte = u8::try_from(random.below(256)).unwrap();
    alloc::vec![byte; usize::try_from(len).unwrap()]
}

fn owned(view: &View<'_>, entry: Option<TreeEntry<'_>>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, value) = entry?;
    let mut bytes = Vec::new();
    value.copy_to(view, &mut bytes).unwrap();
    assert_eq!(bytes.len(), value.len());
    Some((key.to_vec(), bytes))
}

/// Everything in order, forwards and backwards, and every page accounted for.
fn check(view: &View<'_>, model: &Model) {
    let tree = tree(view);
    let mut cursor = tree.first(view).unwrap();
    for (key, value) in model {
        let entry = cursor.next(view).unwrap();
        assert_eq!(owned(view, entry), Some((key.clone(), value.clone())));
    }
    assert!(cursor.next(view).unwrap().is_none());
    let mut cursor = tree.last(view).unwrap();
    for (key, value) in model.iter().rev() {
        let entry = cursor.prev(view).unwrap();
        assert_eq!(owned(view, entry), Some((key.clone(), value.clone())));
    }
    assert!(cursor.prev(view).unwrap().is_none());
    let mut pages = BTreeSet::new();
    let (root, height) = tree.root(view).unwrap();
    if height > 0 {
        reach(view, root, height, &mut pages);
    }
    assert_eq!(tree.space.used(view), Ok(u32::try_from(pages.len()).unwrap()), "no page is lost");
    let mut visited = BTreeSet::new();
    let visit = |run: PageRun| (run.first..run.first + run.count).all(|page| visited.insert(page));
    tree.for_each_run(view, visit).unwrap();
    assert_eq!(visited, pages);
}

/// Collects the pages of a subtree, each once, and checks what a node may look like.
fn reach(view: &View<'_>, page: u32, level: usize, pages: &mut BTreeSet<u32>) {
    assert!(pages.insert(page), "page {page} is used twice");
    let node = Node::new(view.page(page).unwrap()).unwrap();
    assert_eq!(node.kind(), if level == 1 { NodeKind::Leaf } else { NodeKind::Inner });
    assert!((1..node.count()).all(|at| node.key(at - 1).unwrap() < node.key(at).unwrap()));
    let cells: usize = (0..node.count()).map(|at| node.cell(at).unwrap().len() + SLOT_BYTES).sum();
    assert_eq!(node.used().unwrap(), cells);
    if level > 1 {
        (0..=node.count()).for_each(|at| reach(view, node.child(at).unwrap(), level - 1, pages));
        return;
    }
    assert!(node.count() > 0, "an empty leaf goes at once");
    for at in 0..node.count() {
        if let Value::Large(large) = Value::of(&node, at).unwrap() {
            for run in large.runs() {
                (run.first..run.first + run.count).for_each(|page| assert!(pages.insert(page)));
            }
        }
    }
}

/// Any operations on any keys: the same answers as a map, in order, and no page lost or used twice.
#[test]
fn it_behaves_like_a_map() {
    for seed in 1..16 {
        let mut random = Xorshift::new(seed);
        let (mut bench, mut model) = (Bench::new(PAGES), Model::new());
        let keys = 1 << (4 + random.below(8));
        for round in 0..40 {
            let shrinking = random.below(3) == 0;
            bench.run(|view| {
                let tree = tree(view);
                for _ in 0..60 {
                    let key = some_key(&mut random, keys);
                    if random.below(10) < if shrinking { 9 } else { 3 } {
                        assert_eq!(tree.remove(view, &key), Ok(model.remove(&key).is_some()));
                    } else {
                        let value = some_value(&mut random);
                        let known = model.insert(key.clone(), value.clone()).is_some();
                        assert_eq!(tree.insert(view, &key, &value), Ok(known), "seed {seed}");
                    }
                    let key = some_key(&mut random, keys);
                    let found = tree.get(view, &key).unwrap().map(|value| (&key[..], value));
                    assert_eq!(owned(view, found).map(|(_, value)| value), model.get(&key).cloned());
                }
                if round % 5 == 0 {
                    check(view, &model);
                }
            });
        }
        bench.run(|view| {
            let tree = tree(view);
            check(view, &model);
            for (at, key) in model.keys().enumerate() {
                assert_eq!(tree.remove(view, key), Ok(true), "seed {seed} key {at}");
            }
            check(view, &Model::new());
            assert_eq!(tree.root(view), Ok((0, 0)));
        });
    }
}

/// A cursor starts anywhere, at a key that is there or not.
#[test]
fn a_cursor_starts_anywhere() {
    let mut random = Xorshift::new(3);
    let (mut bench, mut model) = (Bench::new(PAGES), Model::new());
    bench.run(|view| {
        let tree = tree(view);
        for _ in 0..400 {
            let key = some_key(&mut random, 3000);
            tree.insert(view, &key, b"x").unwrap();
            model.insert(key, b"x".to_vec());
        }
        for _ in 0..400 {
            let from = some_key(&mut random, 3000);
            let mut cursor = tree.seek(view, &from).unwrap();
            let after: Vec<_> = model.range(from.clone()..).take(3).map(|(key, _)| key.clone()).collect();
            for key in &after {
                assert_eq!(cursor.next(view).unwrap().unwrap().0, key);
            }
            for key in after.iter().rev() {
                assert_eq!(cursor.prev(view).unwrap().unwrap().0, key);
            }
            let before = model.range(..from).next_back().map(|(key, _)| &key[..]);
            assert_eq!(cursor.prev(view).unwrap().map(|(key, _)| key), before);
        }
    });
}

/// Keys that come in order leave full pages behind, in either direction no more than half empty ones.
#[test]
fn pages_are_well_filled() {
    let pages = |keys: &mut dyn Iterator<Item = u32>| {
        let mut bench = Bench::new(PAGES);
        bench.run(|view| {
            let tree = tree(view);
            keys.for_each(|key| assert_eq!(tree.insert(view, &key.to_be_bytes(), &[7; 16]), Ok(false)));
            tree.space.used(view).unwrap()
        })
    };
    // 26 bytes a key, 500 a page: 19 in a page.
    let full = 4000 / 19 + 20;
    assert!(pages(&mut (0..4000)) < full, "{} pages", pages(&mut (0..4000)));
    assert!(pages(&mut (0..4000).rev()) < 2 * full, "{} pages", pages(&mut (0..4000).rev()));
    assert!(pages(&mut (0..4000).map(|at| at * 1319 % 4000)) < 2 * full);
}

/// What does not fit is refused, and nothing has changed.
#[test]
fn a_full_tree_stays_as_it_is() {
    for seed in 1..12 {
        let mut random = Xorshift::new(seed);
        let (mut bench, mut model) = (Bench::new(60), Model::new());
        let mut refused = 0;
        bench.run(|view| {
            let tree = tree(view);
            for _ in 0..600 {
                let (key, value) = (some_key(&mut random, 200), some_value(&mut random));
                match tree.insert(view, &key, &value) {
                    Ok(_) => drop(model.insert(key, value)),
                    Err(error) => {
                        assert_eq!(error, StoreError::Full);
                        refused += 1;
                        if refused % 8 == 0 {
                            check(view, &model);
                        }
                        let key = some_key(&mut random, 200);
                        assert_eq!(tree.remove(view, &key), Ok(model.remove(&key).is_some()));
                    }
                }
            }
            check(view, &model);
        });
        assert!(refused > 20, "seed {seed}: {refused}");
    }
}

#[test]
fn a_key_has_a_longest_length() {
    assert_eq!(Tree::key_bytes_max(4096), 979);
    assert_eq!(Tree::key_bytes_max(65_536), KEY_BYTES_MAX);
    let mut bench = Bench::new(PAGES);
    bench.run(|view| {
        let tree = tree(view);
        let longest = alloc::vec![1; Tree::key_bytes_max(512)];
        for last in 0..40 {
            let mut key = longest.clone();
            *key.last_mut().unwrap() = last;
            assert_eq!(tree.insert(view, &key, &[last; 700]), Ok(false));
        }
        let longer = alloc::vec![1; longest.len() + 1];
        assert_eq!(tree.insert(view, &longer, b""), Err(StoreError::KeyTooLong));
        assert_eq!(tree.get(view, &longer).unwrap().map(|value| value.len()), None);
    });
}

/// B21: a damaged page is an error and never a panic or an endless loop.
#[test]
fn b21_a_damaged_tree_is_survived() {
    let mut errors = 0;
    for seed in 1..200 {
        let mut random = Xorshift::new(seed);
        let mut bench = Bench::new(PAGES);
        for round in 0..12 {
            bench.run(|view| {
                let tree = tree(view);
                for _ in 0..30 {
                    let (key, value) = (some_key(&mut random, 300), some_value(&mut random));
                    let done = if random.below(3) == 0 {
                        tree.remove(view, &key).map_err(StoreError::Stop)
                    } else {
                        tree.insert(view, &key, &value)
                    };
                    let mut out = Vec::new();
                    let read =
                        tree.get(view, &key).map(|value| value.map(|value| value.copy_to(view, &mut out)));
                    errors += u32::from(done.is_err() || read.is_err());
                }
            });
            if round > 2 {
                bench.damage(&mut random);
            }
        }
    }
    assert!(errors > 100, "{errors}");
}

/// L76: a tree that has all its levels is full. It does not grow by one more, after which nobody could read it.
#[test]
fn l76_a_tree_with_all_its_levels_is_full() {
    Bench::new(PAGES).run(|view| {
        let tree = tree(view);
        tree.insert(view, b"0", b"").unwrap();
        let (mut root, _) = tree.root(view).unwrap();
        // Inner nodes without separators, as merges leave them at the worst, have one child each.
        for height in 2..=HEIGHT_MAX {
            let page = tree.space.allocate(view).unwrap();
            node::init(view.page_mut(page).unwrap(), NodeKind::Inner, root);
            tree.set_root(view, page, height).unwrap();
            root = page;
        }
        let mut model: Model = [(b"0".to_vec(), Vec::new())].into();
        loop {
            let key = format!("{:079}", model.len()).into_bytes();
            match tree.insert(view, &key, b"") {
                Ok(_) => assert_eq!(model.insert(key, Vec::new()), None),
                Err(StoreError::Full) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!((3..20).contains(&model.len()), "{} keys fit a page", model.len());
        for key in model.keys() {
            assert!(tree.get(view, key).unwrap().is_some());
        }
        assert!(model.keys().all(|key| tree.remove(view, key).unwrap()));
    });
}

/// L142: a value of many pages has a place although the first 2^18 pages have free ones one at a time only.
#[test]
fn l142_a_long_value_finds_the_free_pages_behind_small_holes() {
    const HOLES: u32 = (1 << 18) + (1 << 12);
    let mut bench = Bench::new(HOLES + 4000);
    bench.run(|view| {
        let tree = tree(view);
        // The bitmap begins at page 1. A word of it has 32 pages in use, and a free one behind each of them.
        view.write(0, 0, &(HOLES / 2).to_le_bytes()).unwrap();
        let bits_a_page = u32::try_from(8 * view.page_bytes()).unwrap();
        for page in 0..HOLES / bits_a_page {
            view.put(1 + page, &[0x55; 512]).unwrap();
        }
        let value = [7; 20 * 512];
        assert_eq!(tree.insert(view, b"key", &value), Ok(false));
        let mut found = Vec::new();
        tree.get(view, b"key").unwrap().unwrap().copy_to(view, &mut found).unwrap();
        assert_eq!(found, value);
    });
}
