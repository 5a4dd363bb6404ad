//! Random operations against the plainest possible file system, and the state checked after each few.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;

use crate::support::*;
use quorate_fs::Settings;
use quorate_fs::nfs3::*;
use quorate_fs::settings::Quota;

/// An object of the model.
#[derive(Clone, Debug)]
enum Object {
    File { data: BTreeMap<u64, u8>, size: u64 },
    Dir(BTreeMap<String, usize>),
    Link(Vec<u8>),
}

/// The model: objects by number, none once gone.
struct Model {
    objects: Vec<Option<(Object, H)>>,
}

type Names = BTreeMap<String, usize>;

impl Model {
    fn dir(&self, at: usize) -> &Names {
        let Some((Object::Dir(names), _)) = &self.objects[at] else { panic!("a directory") };
        names
    }

    fn dir_mut(&mut self, at: usize) -> &mut Names {
        let Some((Object::Dir(names), _)) = &mut self.objects[at] else { panic!("a directory") };
        names
    }

    fn object(&self, at: usize) -> &Object {
        &self.objects[at].as_ref().unwrap().0
    }

    fn handle(&self, at: usize) -> H {
        self.objects[at].as_ref().unwrap().1.clone()
    }

    fn is_dir(&self, at: usize) -> bool {
        matches!(self.object(at), Object::Dir(_))
    }

    fn of(&self, wanted: impl Fn(&Object) -> bool) -> Vec<usize> {
        (0..self.objects.len())
            .filter(|at| self.objects[*at].as_ref().is_some_and(|(object, _)| wanted(object)))
            .collect()
    }

    fn links(&self, at: usize) -> usize {
        let dirs = self.of(|object| matches!(object, Object::Dir(_)));
        dirs.iter().map(|dir| self.dir(*dir).values().filter(|other| **other == at).count()).sum()
    }

    fn is_within(&self, dir: usize, other: usize) -> bool {
        dir == other
            || self.dir(other).values().any(|child| self.is_dir(*child) && self.is_within(dir, *child))
    }

    fn drop_if_unlinked(&mut self, at: usize) {
        if self.links(at) == 0 {
            self.objects[at] = None;
        }
    }
}

/// One run: a file system, its model, and where the choices come from.
struct Play {
    bench: Bench,
    model: Model,
    random: Xorshift,
}

impl Play {
    fn new(seed: u64, settings: Settings) -> Self {
        let bench = Bench::with(settings, 1 << 14);
        let root = (Object::Dir(BTreeMap::new()), bench.root.clone());
        Self { bench, model: Model { objects: vec![Some(root)] }, random: Xorshift::new(seed) }
    }

    fn some_dir(&mut self) -> usize {
        let dirs = self.model.of(|object| matches!(object, Object::Dir(_)));
        *self.random.pick(&dirs)
    }

    fn some_file(&mut self) -> Option<usize> {
        let files = self.model.of(|object| matches!(object, Object::File { .. }));
        (!files.is_empty()).then(|| *self.random.pick(&files))
    }

    fn some_name(&mut self) -> String {
        let number = self.random.below(12);
        if number == 0 { "n".repeat(255) } else { format!("name{number}") }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=4 => self.make(),
            5..=7 => self.remove(),
            8..=10 => self.rename(),
            11..=12 => self.link(),
            13..=16 => self.write(),
            17 => self.truncate(),
            _ => self.look(),
        }
    }

    fn make(&mut self) {
        let (dir, name, kind) = (self.some_dir(), self.some_name(), self.random.below(8));
        let handle = self.model.handle(dir);
        let exists = self.model.dir(dir).contains_key(&name);
        let (made, object) = match kind {
            0..=2 => (self.bench.mkdir(&handle, &name, 0o755), Object::Dir(BTreeMap::new())),
            3 => {
                let target = vec![b'x'; usize::try_from(1 + self.random.below(1000)).unwrap()];
                (self.bench.symlink(&handle, &name, &target), Object::Link(target))
            }
            _ => {
                let how = CreateHow::Guarded(mode(0o644));
                let file = Object::File { data: BTreeMap::new(), size: 0 };
                (self.bench.create(&handle, &name, how), file)
            }
        };
        if exists {
            assert_eq!(made, Err(Stat::Exist));
        } else {
            self.model.objects.push(Some((object, made.unwrap())));
            let number = self.model.objects.len() - 1;
            self.model.dir_mut(dir).insert(name, number);
        }
    }

    fn remove(&mut self) {
        let (dir, name, rmdir) = (self.some_dir(), self.some_name(), self.random.below(2) == 0);
        let handle = self.model.handle(dir);
        let done = if rmdir { self.bench.rmdir(&handle, &name) } else { self.bench.remove(&handle, &name) };
        let expected = match self.model.dir(dir).get(&name).map(|at| (*at, self.model.object(*at))) {
            None => Err(Stat::NoEnt),
            Some((_, Object::Dir(_))) if !rmdir => Err(Stat::IsDir),
            Some((_, Object::Dir(names))) if !names.is_empty() => Err(Stat::NotEmpty),
            Some((_, Object::File { .. } | Object::Link(_))) if rmdir => Err(Stat::NotDir),
            Some((at, _)) => Ok(at),
        };
        assert_eq!(done.map(drop), expected.map(drop));
        if let Ok(at) = expected {
            let gone = self.model.handle(at);
            self.model.dir_mut(dir).remove(&name);
            self.model.drop_if_unlinked(at);
            if self.model.objects[at].is_none() {
                assert_eq!(self.bench.getattr(&gone), Err(Stat::Stale));
            }
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.some_dir(), self.some_dir());
        let (old, new) = (self.some_name(), self.some_name());
        let handles = (self.model.handle(from), self.model.handle(to));
        let done = self.bench.rename((&handles.0, &old), (&handles.1, &new));
        let source = self.model.dir(from).get(&old).copied();
        let target = self.model.dir(to).get(&new).copied();
        let expected = match (source, target) {
            (None, _) => Err(Stat::NoEnt),
            (Some(source), Some(target)) if source == target => Ok(None),
            (Some(source), _) if self.model.is_dir(source) && self.model.is_within(to, source) => {
                Err(Stat::Inval)
            }
            (Some(source), Some(target)) if self.model.is_dir(source) != self.model.is_dir(target) => {
                Err(Stat::Exist)
            }
            (Some(_), Some(target)) if matches!(self.model.object(target), Object::Dir(n) if !n.is_empty()) => {
                Err(Stat::NotEmpty)
            }
            (Some(source), _) => Ok(Some(source)),
        };
        assert_eq!(done.map(drop), expected.map(drop));
        if let Ok(Some(source)) = expected {
            self.model.dir_mut(from).remove(&old);
            self.model.dir_mut(to).insert(new, source);
            if let Some(target) = target {
                self.model.drop_if_unlinked(target);
            }
        }
    }

    fn link(&mut self) {
        let (Some(file), dir, name) = (self.some_file(), self.some_dir(), self.some_name()) else { return };
        let handles = (self.model.handle(file), self.model.handle(dir));
        let done = self.bench.link(&handles.0, &handles.1, &name);
        if self.model.dir(dir).contains_key(&name) {
            assert_eq!(done.map(drop), Err(Stat::Exist));
        } else {
            assert_eq!(done.map(drop), Ok(()));
            self.model.dir_mut(dir).insert(name, file);
        }
    }

    /// An offset: near the beginning, around pages, or far out.
    fn some_offset(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.random.below(20 << 30),
            1..=3 => self.random.below(5) * 4096 + self.random.below(3),
            _ => self.random.below(700),
        }
    }

    fn write(&mut self) {
        let Some(file) = self.some_file() else { return };
        let (offset, handle) = (self.some_offset(), self.model.handle(file));
        let long = if self.random.below(6) == 0 { 20_000 } else { 600 };
        let len = usize::try_from(self.random.below(long)).unwrap();
        let byte = u8::try_from(1 + self.random.below(255)).unwrap();
        let bytes = vec![byte; len];
        let done = self.bench.write(&handle, offset, &bytes);
        let count = match done {
            Ok(ok) => u64::from(ok.count),
            Err(stat) => {
                assert!(matches!(stat, Stat::NoSpc | Stat::DQuot));
                return;
            }
        };
        let Some((Object::File { data, size }, _)) = &mut self.model.objects[file] else { return };
        data.extend((offset..offset + count).map(|at| (at, byte)));
        if count > 0 {
            *size = (*size).max(offset + count);
        }
    }

    fn truncate(&mut self) {
        let Some(file) = self.some_file() else { return };
        let (to, handle) = (self.some_offset(), self.model.handle(file));
        self.bench.setattr(&handle, size(to)).unwrap();
        let Some((Object::File { data, size }, _)) = &mut self.model.objects[file] else { return };
        data.split_off(&to);
        *size = to;
    }

    /// Compares one object, or a piece of a file.
    fn look(&mut self) {
        let all = self.model.of(|_| true);
        let at = *self.random.pick(&all);
        let (handle, links) = (self.model.handle(at), self.model.links(at));
        let attr = self.bench.getattr(&handle).unwrap();
        match self.model.object(at).clone() {
            Object::Dir(names) => {
                let subdirs = names.values().filter(|at| self.model.is_dir(**at)).count();
                assert_eq!(attr.nlink as usize, 2 + subdirs);
                let count = u32::try_from(400 + self.random.below(2000)).unwrap();
                assert_eq!(self.bench.names(&handle, count), names.keys().cloned().collect::<Vec<_>>());
            }
            Object::Link(target) => assert_eq!(self.bench.readlink(&handle).unwrap(), target),
            Object::File { data, size } => {
                assert_eq!((attr.size, attr.nlink as usize), (size, links));
                let offset = self.some_offset();
                let (bytes, eof) = self.bench.read(&handle, offset, 9000).unwrap();
                let end = (offset + 9000).min(size).max(offset);
                let expected: Vec<u8> = (offset..end).map(|at| data.get(&at).copied().unwrap_or(0)).collect();
                assert_eq!((bytes == expected, eof), (true, offset + 9000 >= size));
            }
        }
    }

    fn compare_all(&mut self) {
        for dir in self.model.of(|object| matches!(object, Object::Dir(_))) {
            let (handle, names) = (self.model.handle(dir), self.model.dir(dir).clone());
            assert_eq!(self.bench.names(&handle, 1000), names.keys().cloned().collect::<Vec<_>>());
            for (name, at) in names {
                assert_eq!(self.bench.lookup(&handle, &name).unwrap(), self.model.handle(at));
            }
        }
        for file in self.model.of(|object| matches!(object, Object::File { .. })) {
            let Object::File { data, .. } = self.model.object(file).clone() else { continue };
            let handle = self.model.handle(file);
            for (at, byte) in data.iter().step_by(37) {
                assert_eq!(self.bench.read(&handle, *at, 1).unwrap().0, [*byte]);
            }
        }
    }
}

#[test]
fn it_behaves_like_the_plainest_file_system() {
    for seed in 0..20 {
        let mut play = Play::new(seed, open_settings());
        for step in 0..500 {
            play.step();
            if step % 25 == 0 {
                let report = play.bench.fsck();
                assert!(report.is_clean(), "seed {seed} step {step}: {:?}", report.findings);
            }
        }
        play.compare_all();
        play.bench.assert_clean();
    }
}

/// With quotas, what users own is counted right.
#[test]
fn usage_is_counted() {
    for seed in 100..106 {
        let quota = Quota { bytes_max: 1 << 52, inodes_max: 1 << 40 };
        let mut play = Play::new(seed, Settings { quota, ..open_settings() });
        for step in 0..300 {
            play.step();
            if step % 10 == 0
                && let Some(file) = play.some_file()
            {
                let uid = Some(u32::try_from(play.random.below(3)).unwrap());
                let handle = play.model.handle(file);
                play.bench.setattr(&handle, SetAttr { uid, ..SetAttr::default() }).unwrap();
                play.bench.assert_clean();
            }
        }
        play.compare_all();
    }
}
