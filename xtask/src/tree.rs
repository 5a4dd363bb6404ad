//! The files of the workspace as values, so that a check is a function of them and its test can
//! hand it a small tree that breaks the rule.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Directories that are never ours to check.
const SKIPPED: &[&str] = &[".git", "target", "quorate-data"];

/// Returns what stands behind the last dot of a path.
pub(crate) fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, end)| end)
}

/// Text files by path from the root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads every text file under `root`.
    ///
    /// # Errors
    ///
    /// When a directory or file cannot be read. A file that is not UTF-8 is left out.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        let entries =
            fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.add(&entry.path(), &path)?;
            } else if kind.is_file()
                && !SKIPPED.contains(&name.as_str())
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    /// Returns the text of a file.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Says whether a file, or a directory with a file in it, is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&below))
    }

    /// Returns all files in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the files with this extension, for example `rs`.
    pub(crate) fn with_extension(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| extension(path) == end)
    }

    /// Returns the files whose path ends so, for example in `/Cargo.toml`.
    pub(crate) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(end))
    }

    /// Returns the Rust sources of the rooms: `crates/*/src/**.rs`.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_extension("rs").filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"))
    }

    /// Returns a tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }
}
