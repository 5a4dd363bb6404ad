//! A disk in memory, for the tests of this module.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::cell::RefCell;

use super::io::{DiskAction, DiskError, DiskErrorKind, DiskFile, DiskIo};

type Bytes = Rc<RefCell<Vec<u8>>>;

/// Files in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestDisk(Rc<RefCell<BTreeMap<String, Bytes>>>, BadSectors);

/// One of its files.
#[derive(Clone, Debug)]
pub(crate) struct TestFile(Bytes, String, BadSectors);

/// Places that cannot be read, with the names of their files.
type BadSectors = Rc<RefCell<Vec<(String, usize)>>>;

impl TestDisk {
    /// Sets the content of a file.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.file(name).replace(bytes);
    }

    /// Returns the names of all files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }

    /// Returns the content of all files.
    pub(crate) fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let files = self.0.borrow();
        files.iter().map(|(name, bytes)| (name.clone(), bytes.borrow().clone())).collect()
    }

    /// Lets a byte of a file be one that cannot be read.
    pub(crate) fn spoil(&self, name: &str, at: usize) {
        self.1.borrow_mut().push((name.to_string(), at));
    }

    fn file(&self, name: &str) -> Bytes {
        Rc::clone(self.0.borrow_mut().entry(name.to_string()).or_default())
    }
}

fn missing(name: &str) -> DiskError {
    DiskError {
        kind: DiskErrorKind::Missing,
        action: DiskAction::Open,
        file: name.to_string(),
        cause: "no such file".to_string(),
    }
}

impl DiskIo for TestDisk {
    type File = TestFile;

    fn open(&self, name: &str) -> Result<TestFile, DiskError> {
        Ok(TestFile(self.file(name), name.to_string(), Rc::clone(&self.1)))
    }

    fn open_to_read(&self, name: &str) -> Result<TestFile, DiskError> {
        let file = self.0.borrow().get(name).cloned().ok_or_else(|| missing(name))?;
        Ok(TestFile(file, name.to_string(), Rc::clone(&self.1)))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let file = self.open_to_read(name)?;
        let mut bytes = file.0.borrow().clone();
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn exists(&self, name: &str) -> bool {
        self.0.borrow().contains_key(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let names = self.names().into_iter();
        Ok(names.filter_map(|name| Some(name.strip_prefix(dir)?.strip_prefix('/')?.to_string())).collect())
    }

    fn create_dir(&self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let file = self.0.borrow_mut().remove(from).ok_or_else(|| missing(from))?;
        self.0.borrow_mut().insert(to.to_string(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().remove(name).map(|_| ()).ok_or_else(|| missing(name))
    }

    fn settle(&self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_dir(&self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }
}

impl DiskFile for TestFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), DiskError> {
        let (file, at) = (self.0.borrow(), usize::try_from(at).unwrap());
        let range = at..at + bytes.len();
        if self.2.borrow().iter().any(|(name, at)| *name == self.1 && range.contains(at)) {
            return Err(DiskError {
                kind: DiskErrorKind::Unreadable,
                action: DiskAction::Read,
                ..missing(&self.1)
            });
        }
        let found = file.get(at..at + bytes.len()).ok_or_else(|| missing("the end of the file"))?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskError> {
        let (mut file, at) = (self.0.borrow_mut(), usize::try_from(at).unwrap());
        let len = file.len().max(at + bytes.len());
        file.resize(len, 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        let len = usize::try_from(len).unwrap().max(self.0.borrow().len());
        self.0.borrow_mut().resize(len, 0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.0.borrow_mut().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.0.borrow().len() as u64)
    }
}
