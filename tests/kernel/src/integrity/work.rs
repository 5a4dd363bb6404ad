//! In the guest: operations of several workers at random, in the directory that is mounted, and the journal of what
//! was acknowledged, outside of it.
//!
//! Each worker has its own directory, so that it knows the right answer to every operation: a call that was done
//! twice is one that fails (the file exists already, or is not there any more) or leaves another count of links. All
//! compete for the names of one directory: of each exactly one may have made it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Error, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::block::{self, BYTES, Random};
use super::model::{Model, Op};

/// How many work at a time.
pub(crate) const WORKERS: u64 = 4;
const FILES_MAX: usize = 40;
const DIRECTORIES_MAX: usize = 8;
const OPEN_MAX: usize = 6;
const BLOCKS_MAX: u64 = 48;
/// So much that is wrong is enough to know.
const WRONG_MAX: usize = 10;

/// How often each of the names that all compete for was made.
type Contest = Mutex<BTreeMap<u64, u64>>;

/// Works for some seconds in the current directory, and writes journals to `dir`; returns how many operations failed
/// that must not. The client may die at any time after that.
pub(crate) fn work(seed: u64, seconds: u64, dir: &Path) -> Result<usize> {
    let contest = Contest::default();
    fs::create_dir("contest")?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let workers: Vec<Result<Worker<'_>>> = std::thread::scope(|scope| {
        let run = |number| {
            let contest = &contest;
            scope.spawn(move || {
                let mut worker = Worker::start(number, seed, contest, dir)?;
                while Instant::now() < end && worker.wrong.len() < WRONG_MAX {
                    worker.step();
                }
                worker.journal.flush()?;
                worker.journal.get_ref().sync_all()?;
                Ok(worker)
            })
        };
        let handles: Vec<_> = (0..WORKERS).map(run).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| match handle.join() {
            Ok(worker) => worker,
            Err(_) => bail!("a worker has panicked"),
        };
        handles.into_iter().map(join).collect()
    });
    let mut wrong: Vec<String> = Vec::new();
    let mut done = BTreeMap::new();
    for worker in workers {
        let worker = worker?;
        wrong.extend(worker.wrong);
        for (what, count) in worker.done {
            *done.entry(what).or_insert(0) += count;
        }
        // Open, and some of it not sent: so the client dies.
        worker.open.into_values().for_each(std::mem::forget);
    }
    let made = contest.lock().map_err(|_| Error::other("a worker has panicked"))?;
    let others = made.iter().filter(|(_, times)| **times != 1);
    wrong.extend(others.map(|(name, times)| format!("contest/{name} was made {times} times")));
    for wrong in &wrong {
        println!("FAILED  {wrong}");
    }
    let total: u64 = done.values().sum();
    println!("worked: {total} operations {done:?}, {} names contested", made.len());
    Ok(wrong.len())
}

#[derive(Debug)]
struct Worker<'a> {
    home: String,
    number: u64,
    random: Random,
    model: Model,
    /// Files that stay open, some of their data not sent yet.
    open: BTreeMap<u64, File>,
    journal: BufWriter<File>,
    contest: &'a Contest,
    contested: u64,
    /// For names, files and generations that were never used before.
    last: u64,
    done: BTreeMap<&'static str, u64>,
    wrong: Vec<String>,
}

impl<'a> Worker<'a> {
    fn start(number: u64, seed: u64, contest: &'a Contest, dir: &Path) -> Result<Self> {
        let home = format!("w{number}");
        let journal = BufWriter::new(File::create(dir.join(format!("journal-{number}")))?);
        let mut worker = Self {
            home: home.clone(),
            number,
            random: Random(seed * WORKERS + number),
            model: Model::default(),
            open: BTreeMap::new(),
            journal,
            contest,
            contested: 0,
            last: 0,
            done: BTreeMap::new(),
            wrong: Vec::new(),
        };
        fs::create_dir(&home)?;
        worker.acknowledged(&Op::MakeDirectory { path: home })?;
        Ok(worker)
    }

    /// Does one operation.
    fn step(&mut self) {
        let (what, did): (_, Result<()>) = match self.random.below(20) {
            0..3 => ("create", self.create()),
            3..9 => ("write", self.write()),
            9..11 => ("read", self.read()),
            11 => ("truncate", self.truncate()),
            12..14 => ("sync", self.sync()),
            14..16 => ("rename", self.rename()),
            16 => ("link", self.link()),
            17 => ("remove", self.remove()),
            18 => ("directory", self.directory()),
            _ => ("contest", self.compete()),
        };
        *self.done.entry(what).or_insert(0) += 1;
        if let Err(error) = did {
            self.wrong.push(format!("worker {} {what}: {error:#}", self.number));
        }
    }

    /// Notes what was acknowledged.
    fn acknowledged(&mut self, op: &Op) -> Result<()> {
        self.model.apply(op)?;
        Ok(writeln!(self.journal, "{op}")?)
    }

    fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns a path that was never there, in a directory that is.
    fn new_path(&mut self) -> String {
        let fresh = self.fresh();
        let at = self.random.below(u64::try_from(self.model.directories.len()).unwrap_or(1));
        let home = self.model.directories.iter().nth(usize::try_from(at).unwrap_or(0));
        format!("{}/f{fresh}", home.unwrap_or(&self.home))
    }

    /// Returns a path that is there, with its file; it is made if there is none.
    fn some_path(&mut self) -> Result<(String, u64)> {
        if self.model.names.is_empty() {
            self.create()?;
        }
        let at = self.random.below(u64::try_from(self.model.names.len())?);
        let found = self.model.names.iter().nth(usize::try_from(at)?);
        found.map(|(path, file)| (path.clone(), *file)).context("there is no file")
    }

    /// Returns a file that is open.
    fn some_open(&mut self) -> Result<u64> {
        let (path, file) = self.some_path()?;
        if !self.open.contains_key(&file) {
            if self.open.len() >= OPEN_MAX {
                // The client sends what it has when a file is closed.
                self.open.pop_first();
            }
            let opened = File::options().read(true).write(true).open(&path).context(path)?;
            self.open.insert(file, opened);
        }
        Ok(file)
    }

    fn opened(&self, file: u64) -> Result<&File> {
        self.open.get(&file).context("it is not open")
    }

    fn create(&mut self) -> Result<()> {
        if self.model.names.len() >= FILES_MAX {
            return self.remove();
        }
        let path = self.new_path();
        let made =
            File::options().read(true).write(true).create_new(true).open(&path).context(path.clone())?;
        let file = self.fresh() * WORKERS + self.number;
        self.acknowledged(&Op::Create { path: path.clone(), file, inode: made.metadata()?.ino() })?;
        // And not once more.
        let again = File::options().write(true).create_new(true).open(&path);
        expect(again, ErrorKind::AlreadyExists).context(path)
    }

    fn write(&mut self) -> Result<()> {
        let file = self.some_open()?;
        let (first, count) = (self.random.below(BLOCKS_MAX), 1 + self.random.below(4));
        for number in first..first + count {
            let generation = self.fresh();
            let bytes = block::make(file, number, generation);
            self.opened(file)?.write_all_at(&bytes, number * u64::try_from(BYTES)?)?;
            self.acknowledged(&Op::Write { file, number, generation })?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let file = self.some_open()?;
        let now = self.model.file(file)?.now.clone();
        let number = self.random.below(u64::try_from(now.len())?);
        let Some(generation) = usize::try_from(number).ok().and_then(|at| now.get(at)) else { return Ok(()) };
        let mut bytes = vec![0; BYTES];
        self.opened(file)?.read_exact_at(&mut bytes, number * u64::try_from(BYTES)?)?;
        match block::generation(&bytes, file, number) {
            Ok(found) if found == *generation => Ok(()),
            found => bail!("file {file:x} block {number} is {found:?} instead of generation {generation}"),
        }
    }

    fn truncate(&mut self) -> Result<()> {
        let file = self.some_open()?;
        let blocks = self.random.below(BLOCKS_MAX);
        self.opened(file)?.set_len(blocks * u64::try_from(BYTES)?)?;
        self.acknowledged(&Op::Truncate { file, blocks })
    }

    fn sync(&mut self) -> Result<()> {
        let file = self.some_open()?;
        self.opened(file)?.sync_all()?;
        self.acknowledged(&Op::Sync { file })
    }

    fn rename(&mut self) -> Result<()> {
        let (from, file) = self.some_path()?;
        let (other, over) = self.some_path()?;
        // Over a name of the same file it does nothing; and what is replaced while it is open keeps a name.
        let to = if over == file || self.open.contains_key(&over) { self.new_path() } else { other };
        fs::rename(&from, &to).with_context(|| format!("{from} to {to}"))?;
        self.acknowledged(&Op::Rename { from: from.clone(), to })?;
        expect(fs::symlink_metadata(&from), ErrorKind::NotFound).context(from)
    }

    fn link(&mut self) -> Result<()> {
        if self.model.names.len() >= FILES_MAX {
            return self.remove();
        }
        let ((from, file), to) = (self.some_path()?, self.new_path());
        fs::hard_link(&from, &to).with_context(|| format!("{from} to {to}"))?;
        self.acknowledged(&Op::Link { from, to: to.clone() })?;
        let (links, found) = (self.model.file(file)?.links, fs::symlink_metadata(&to)?.nlink());
        if links != found {
            bail!("{to} has {found} links instead of {links}");
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let (path, file) = self.some_path()?;
        self.open.remove(&file);
        fs::remove_file(&path).context(path.clone())?;
        self.acknowledged(&Op::Remove { path: path.clone() })?;
        expect(fs::remove_file(&path), ErrorKind::NotFound).context(path)
    }

    fn directory(&mut self) -> Result<()> {
        let last = self.model.directories.last().cloned().unwrap_or_default();
        let is_empty = !self.model.names.keys().any(|path| path.starts_with(&format!("{last}/")));
        if last != self.home && is_empty {
            fs::remove_dir(&last).context(last.clone())?;
            return self.acknowledged(&Op::RemoveDirectory { path: last });
        }
        if self.model.directories.len() >= DIRECTORIES_MAX {
            return Ok(());
        }
        let fresh = self.fresh();
        let path = format!("{}/d{fresh}", self.home);
        fs::create_dir(&path).context(path.clone())?;
        self.acknowledged(&Op::MakeDirectory { path: path.clone() })?;
        expect(fs::create_dir(&path), ErrorKind::AlreadyExists).context(path)
    }

    /// Makes a name that others try to make as well.
    fn compete(&mut self) -> Result<()> {
        let name = self.contested;
        self.contested += 1;
        let path = format!("contest/{name}");
        let made = match File::options().write(true).create_new(true).open(&path) {
            Ok(_) => 1,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => 0,
            Err(error) => return Err(error).context(path),
        };
        let mut all = self.contest.lock().map_err(|_| Error::other("a worker has panicked"))?;
        *all.entry(name).or_insert(0) += made;
        Ok(())
    }
}

/// Says that something fails, and how.
fn expect<T>(result: std::io::Result<T>, kind: ErrorKind) -> Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => bail!("{error}, instead of {kind}"),
        Ok(_) => bail!("done, instead of {kind}"),
    }
}
