//! The modules of a crate, the files that they are in, and the paths that lead from one to another.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{Token, closed, is_name, text, tokens};

/// Imports that lead to each other end after this many steps.
const STEPS_MAX: usize = 16;

/// A module: a file, or a `mod` block in one.
#[derive(Default)]
pub(super) struct Module<'a> {
    pub(super) file: usize,
    parent: usize,
    children: BTreeMap<&'a str, usize>,
    /// The names that `use` brings in, with their paths.
    imports: BTreeMap<&'a str, Vec<&'a str>>,
    globs: Vec<Vec<&'a str>>,
    items: BTreeSet<&'a str>,
    /// Every path in code, from `use` as well, and where it stands.
    paths: Vec<(Vec<&'a str>, usize)>,
    /// Its tokens, without those of `mod` blocks in it.
    pub(super) tokens: Vec<Token<'a>>,
}

/// The product's modules of one crate; those of tests are not in it.
pub(super) struct Modules<'a> {
    pub(super) all: Vec<Module<'a>>,
    /// The paths of the files below `src/`.
    pub(super) files: Vec<&'a str>,
}

/// A use of one file by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where it stands in `from`.
    pub(super) at: usize,
}

impl<'a> Modules<'a> {
    /// Reads the modules below the root file of a crate. `files` has the code of each file, by its path below `src/`.
    pub(super) fn read(root: &'a str, files: &'a BTreeMap<&'a str, String>) -> Self {
        let mut modules = Self { all: Vec::new(), files: Vec::new() };
        modules.add_file(root, "", 0, files);
        modules
    }

    fn add_file(
        &mut self,
        path: &'a str,
        directory: &str,
        parent: usize,
        files: &'a BTreeMap<&'a str, String>,
    ) -> usize {
        let file = self.files.len();
        self.files.push(path);
        let code = files.get(path).map_or("", String::as_str);
        self.add_block(&tokens(code), file, directory, parent, files)
    }

    fn add_block(
        &mut self,
        tokens: &[Token<'a>],
        file: usize,
        directory: &str,
        parent: usize,
        files: &'a BTreeMap<&'a str, String>,
    ) -> usize {
        let own = self.all.len();
        self.all.push(Module { file, parent, ..Module::default() });
        let mut children = BTreeMap::new();
        let mut kept = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            let name = text(tokens, at + 1);
            if text(tokens, at) != "mod" || !is_name(name) {
                kept.push(tokens[at]);
                at += 1;
                continue;
            }
            let below = format!("{directory}{name}/");
            if text(tokens, at + 2) == "{" {
                let end = closed(tokens, at + 2);
                let inside = &tokens[at + 3..(end - 1).max(at + 3)];
                children.insert(name, self.add_block(inside, file, &below, own, files));
                at = end;
            } else {
                let path = [format!("{directory}{name}.rs"), format!("{below}mod.rs")];
                if let Some((path, _)) = path.iter().find_map(|path| files.get_key_value(path.as_str())) {
                    children.insert(name, self.add_file(path, &below, own, files));
                }
                at += 3;
            }
        }
        let module = &mut self.all[own];
        module.children = children;
        module.look(&kept);
        module.tokens = kept;
        own
    }

    /// Returns the uses of one file by another, each pair once.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let mut found: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (index, module) in self.all.iter().enumerate() {
            for (path, at) in &module.paths {
                let Some(to) = self.defining(index, path) else { continue };
                let pair = (module.file, self.all[to].file);
                if pair.0 != pair.1 {
                    let first = found.entry(pair).or_insert(*at);
                    *first = (*first).min(*at);
                }
            }
        }
        found.into_iter().map(|((from, to), at)| Edge { from, to, at }).collect()
    }

    /// Returns the module in which the item stands that a path names, also where others pass it on. A path
    /// that leaves the crate or names a module has none.
    pub(super) fn defining(&self, from: usize, path: &[&'a str]) -> Option<usize> {
        self.resolve(from, path, STEPS_MAX).and_then(|(module, is_item)| is_item.then_some(module))
    }

    /// Returns the module at the end of a path, and whether the path names an item in it.
    fn resolve(&self, from: usize, path: &[&'a str], steps: usize) -> Option<(usize, bool)> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut at = match *first {
            "crate" => 0,
            "self" => from,
            "super" => self.all[from].parent,
            name => match self.step(from, name, steps)? {
                (module, true) => return Some((module, true)),
                (module, false) => module,
            },
        };
        for name in rest {
            if *name == "super" {
                at = self.all[at].parent;
                continue;
            }
            match self.step(at, name, steps) {
                Some((module, false)) => at = module,
                Some((module, true)) => return Some((module, true)),
                // Passed on from another crate.
                None if self.all[at].imports.contains_key(name) => return None,
                // What a macro makes.
                None => return Some((at, true)),
            }
        }
        Some((at, false))
    }

    /// Follows one name from a module.
    fn step(&self, at: usize, name: &'a str, steps: usize) -> Option<(usize, bool)> {
        let module = &self.all[at];
        if let Some(child) = module.children.get(name) {
            return Some((*child, false));
        }
        // Before the items, among which the names of methods are.
        if let Some(path) = module.imports.get(name) {
            return (path[..] != [name]).then(|| self.resolve(at, path, steps))?;
        }
        if module.items.contains(name) {
            return Some((at, true));
        }
        module.globs.iter().find_map(|glob| {
            let (target, _) = self.resolve(at, glob, steps)?;
            let steps = steps.checked_sub(1)?;
            if target == at { None } else { self.step(target, name, steps) }
        })
    }
}

impl<'a> Module<'a> {
    /// Notes the items, imports and paths of the module.
    fn look(&mut self, tokens: &[Token<'a>]) {
        let mut at = 0;
        while at < tokens.len() {
            let word = tokens[at].text;
            let next = text(tokens, at + 1);
            let previous = if at == 0 { "" } else { text(tokens, at - 1) };
            if word == "use" && next != "<" {
                at = self.import(tokens, at + 1, &[]);
                continue;
            }
            if matches!(word, "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static")
                && is_name(next)
            {
                self.items.insert(next);
            }
            if is_name(word) && next == "::" && !matches!(previous, "::" | ".") {
                let (path, end) = path(tokens, at);
                if path.len() > 1 {
                    self.paths.push((path, tokens[at].at));
                }
                at = end;
                continue;
            }
            at += 1;
        }
    }

    /// Notes one tree of a `use`, and returns the index behind it.
    fn import(&mut self, tokens: &[Token<'a>], start: usize, prefix: &[&'a str]) -> usize {
        let mut whole = prefix.to_vec();
        let mut at = start;
        let place = tokens.get(start).map_or(0, |token| token.at);
        loop {
            match text(tokens, at) {
                "::" => at += 1,
                "{" => {
                    let end = closed(tokens, at);
                    at += 1;
                    while at + 1 < end {
                        at = self.import(tokens, at, &whole);
                        at += usize::from(text(tokens, at) == ",");
                    }
                    return end;
                }
                "*" => {
                    self.globs.push(whole);
                    return at + 1;
                }
                "as" => {
                    let alias = text(tokens, at + 1);
                    self.bind(alias, whole, place);
                    return at + 2;
                }
                name if is_name(name) => {
                    // `a::{self}` names `a`.
                    if name != "self" || whole.is_empty() {
                        whole.push(name);
                    }
                    at += 1;
                }
                _ => {
                    if let Some(name) = whole.last().copied() {
                        self.bind(name, whole, place);
                    }
                    return at.max(start + 1);
                }
            }
        }
    }

    fn bind(&mut self, name: &'a str, path: Vec<&'a str>, at: usize) {
        self.paths.push((path.clone(), at));
        self.imports.insert(name, path);
    }
}

/// Returns the path that begins at a name, and the index behind it.
fn path<'a>(tokens: &[Token<'a>], start: usize) -> (Vec<&'a str>, usize) {
    let mut found = vec![tokens[start].text];
    let mut at = start + 1;
    while text(tokens, at) == "::" && is_name(text(tokens, at + 1)) {
        found.push(tokens[at + 1].text);
        at += 2;
    }
    (found, at)
}
