//! `cargo xtask site`: the documents as a website.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::ci::target;
use crate::tidy::site::{files, summary};
use crate::tree::Tree;
use xtask::{root, run};

/// The settings of mdBook. Its preprocessors are off: they would rename `README.md`, to which other pages link.
const BOOK: &str = "[book]\ntitle = \"quorate\"\nlanguage = \"en\"\nsrc = \"src\"\n\n[build]\nuse-default-preprocessors = false\n";

/// Copies the pages of docs/SUMMARY.md, and what they link to, and lets mdBook make a website of them, if it is installed.
/// All files keep their paths, so all links between them hold.
pub(crate) fn site(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("site takes no arguments");
    }
    let (tree, home) = (Tree::read(&root())?, target()?.join("site"));
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    let source = home.join("src");
    for path in files(&tree) {
        let to = source.join(&path);
        make_parent(&to)?;
        fs::copy(root().join(&path), &to).with_context(|| format!("cannot copy {path}"))?;
    }
    write(&source.join("SUMMARY.md"), &summary(&tree))?;
    write(&home.join("book.toml"), BOOK)?;
    if Command::new("mdbook").arg("--version").output().is_err() {
        println!("site: the pages are in {}. To make the website, install mdBook", source.display());
        return Ok(());
    }
    run(Command::new("mdbook").arg("build").arg(&home))?;
    println!("site: {}", home.join("book/index.html").display());
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path without a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
