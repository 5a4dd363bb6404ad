//! How a crate hangs together: which of its files use each other, which of its fields and methods are
//! open to other files. `xtask/structure.txt` holds the most that there may be; it can only shrink.
//!
//! The figures come from the names in the code, not from types: a method call is an edge only where it
//! is a call on `self`.

mod circles;
mod listed;
mod modules;
mod order;
mod owners;
mod ratchet;
mod tokens;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::{Finding, line_of};
use crate::rust::Source;
use crate::tree::Tree;
use modules::Modules;
pub(super) use ratchet::TABLE;
use xtask::root;

/// The structure of one crate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Structure {
    /// Its directory below `crates/`.
    name: String,
    files: usize,
    /// Each file with those that it uses.
    uses: Vec<(String, Vec<String>)>,
    /// The largest first.
    circles: Vec<Vec<String>>,
    /// Uses of a file by one that the order places below it.
    arrows: Vec<Finding>,
    /// Files without a place in the order, and places without a file.
    unplaced: Vec<Finding>,
    owners: owners::Owners,
}

/// The figures that can only shrink, by name and with what they count.
const FIGURES: [(&str, &str); 5] = [
    ("circle", "files in the largest circle"),
    ("circles", "files in any circle"),
    ("up", "arrows up"),
    ("open", "open fields of structs that change themselves"),
    ("verbs", "verbs that cross files"),
];

impl Structure {
    /// Returns its figures, in the order of [`FIGURES`].
    fn figures(&self) -> [usize; FIGURES.len()] {
        [
            self.circles.first().map_or(0, Vec::len),
            self.circles.iter().map(Vec::len).sum(),
            self.arrows.len(),
            self.owners.open.len(),
            self.owners.verbs.len(),
        ]
    }
}

/// Looks at every crate of the product.
pub(super) fn measure(tree: &Tree) -> Vec<Structure> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for (path, text) in tree.sources() {
        let Some((name, file)) = path["crates/".len()..].split_once("/src/") else { continue };
        crates.entry(name).or_default().insert(file, Source::new(text).product());
    }
    crates.iter().map(|(name, files)| structure(name, files)).collect()
}

fn structure(name: &str, files: &BTreeMap<&str, String>) -> Structure {
    let root = if files.contains_key("lib.rs") { "lib.rs" } else { "main.rs" };
    let modules = Modules::read(root, files);
    let edges = modules.edges();
    let circles = circles::circles(modules.files.len(), edges.iter().map(|edge| (edge.from, edge.to)));
    let named = |circle: &Vec<usize>| circle.iter().map(|&file| modules.files[file].to_owned()).collect();
    let order = order::of(name);
    let mut arrows = Vec::new();
    for edge in &edges {
        let (from, to) = (modules.files[edge.from], modules.files[edge.to]);
        if let (Some(below), Some(above)) = (order::place(order, from), order::place(order, to))
            && below < above
        {
            let code = files.get(from).map_or("", String::as_str);
            let line = line_of(code, edge.at);
            arrows.push(Finding::new(
                &format!("crates/{name}/src/{from}"),
                line,
                format!("uses {to}, which is above it"),
            ));
        }
    }
    Structure {
        name: name.to_owned(),
        files: modules.files.len(),
        uses: (0..modules.files.len())
            .map(|file| {
                let used = edges.iter().filter(|edge| edge.from == file);
                (modules.files[file].to_owned(), used.map(|edge| modules.files[edge.to].to_owned()).collect())
            })
            .collect(),
        circles: circles.iter().map(named).collect(),
        arrows,
        unplaced: order::unplaced(name, order, &modules.files),
        owners: owners::owners(&modules),
    }
}

/// Finds crates whose figures are not those of the table, and files without a place.
pub(super) fn check(tree: &Tree, crates: &[Structure]) -> Vec<Finding> {
    let mut found = ratchet::check(tree.get(TABLE).unwrap_or_default(), crates);
    found.extend(crates.iter().flat_map(|one| &one.unplaced).cloned());
    found.extend(listed::check(tree, crates));
    found
}

/// Returns the table with what has become less entered, if anything has.
pub(super) fn blessed(tree: &Tree) -> Option<String> {
    ratchet::blessed(tree.get(TABLE).unwrap_or_default(), &measure(tree))
}

/// Returns the table that `tidy` prints.
pub(super) fn page(crates: &[Structure]) -> String {
    let cells = |cells: &[String]| cells.iter().fold(String::new(), |line, cell| format!("{line} {cell:>8}"));
    let titles = FIGURES.map(|(title, _)| title.to_owned());
    let mut lines = vec![format!("tidy: {:12} {:>5}{}", "crate", "files", cells(&titles))];
    for one in crates {
        let figures = one.figures().map(|figure| figure.to_string());
        lines.push(format!("      {:12} {:>5}{}", one.name, one.files, cells(&figures)));
    }
    lines.join("\n")
}

/// `cargo xtask structure [CRATE]`: what the figures count, in full; of one crate also which file uses which.
pub(crate) fn show(args: &[String]) -> Result<()> {
    let crates = measure(&Tree::read(&root())?);
    let wanted: Vec<&Structure> =
        crates.iter().filter(|one| args.is_empty() || args.contains(&one.name)).collect();
    if wanted.is_empty() || args.len() > 1 {
        bail!("structure takes the name of a directory below crates/, or nothing");
    }
    for one in wanted {
        println!("{}: {} files", one.name, one.files);
        for (file, used) in one.uses.iter().filter(|(_, used)| !args.is_empty() && !used.is_empty()) {
            println!("  {file} uses {}", used.join(" "));
        }
        for circle in &one.circles {
            println!("  circle of {}: {}", circle.len(), circle.join(" "));
        }
        for arrow in &one.arrows {
            println!("  arrow up: {}:{}: {}", arrow.path, arrow.line, arrow.says);
        }
        let verbs: Vec<String> = one.owners.verbs.iter().map(|(verb, _)| verb.clone()).collect();
        for (says, names) in [("open fields", &one.owners.open), ("verbs across files", &verbs)] {
            if !names.is_empty() {
                println!("  {} {says}: {}", names.len(), names.join(" "));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands the modules of a crate of these files to a function.
    pub(super) fn modules_of<T>(files: &[(&str, &str)], look: impl FnOnce(&Modules<'_>) -> T) -> T {
        let files: BTreeMap<&str, String> =
            files.iter().map(|(path, text)| (*path, Source::new(text).product())).collect();
        look(&Modules::read("lib.rs", &files))
    }

    /// Returns the uses between the files of a crate, as `from>to`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        modules_of(files, |modules| {
            let name = |file: usize| modules.files[file].trim_end_matches(".rs");
            modules.edges().iter().map(|edge| format!("{}>{}", name(edge.from), name(edge.to))).collect()
        })
    }

    const ROOT: &str = "mod a; mod b; mod c; pub use a::A;";

    #[test]
    fn uses_are_found_in_imports_and_in_code() {
        let a = "use super::b::{self, B as Other, deep::{D}}; pub struct A; fn f() { crate::c::g(); }";
        let b = "pub(super) mod deep; pub struct B;";
        let files =
            [("lib.rs", ROOT), ("a.rs", a), ("b.rs", b), ("b/deep.rs", "pub struct D;"), ("c.rs", "")];
        assert_eq!(edges(&files), ["lib>a", "a>b", "a>b/deep", "a>c"]);
    }

    #[test]
    fn what_is_passed_on_is_used_where_it_is_made() {
        let b = "use crate::A; pub use std::fmt; fn f(x: crate::A) {}";
        let c = "use super::b; use crate::b::fmt; fn f() { b::fmt::g(); super::b::h() }";
        let files = [("lib.rs", ROOT), ("a.rs", "pub struct A;"), ("b.rs", b), ("c.rs", c)];
        assert_eq!(edges(&files), ["lib>a", "b>a", "c>b"]);
        let through =
            [("lib.rs", "mod a; mod b; pub use a::*;"), ("a.rs", "pub struct A;"), ("b.rs", "use crate::A;")];
        assert_eq!(edges(&through), ["b>a"]);
    }

    #[test]
    fn tests_comments_strings_and_blocks_of_modules_are_told_apart() {
        let a = "// crate::b::B\nconst T: &str = \"crate::b::B\"; #[cfg(test)] mod tests { use crate::b::B; }\n\
                 mod inner { use super::super::c::C; use super::own; } fn own() {}";
        let root = "mod a; mod b; mod c; #[cfg(test)] mod testing;";
        let files = [
            ("lib.rs", root),
            ("a.rs", a),
            ("b.rs", ""),
            ("c.rs", "pub struct C;"),
            ("testing.rs", "use crate::b;"),
        ];
        assert_eq!(edges(&files), ["a>c"]);
        assert_eq!(modules_of(&files, |modules| modules.files.len()), 4);
    }

    /// A crate with a place in the order for `a`, `b` and `c`, in this order from the ground up.
    pub(super) fn planted(a: &str, b: &str, c: &str) -> Structure {
        let files = [("lib.rs", ROOT), ("a.rs", a), ("b.rs", b), ("c.rs", c)];
        let files = files.iter().map(|(path, text)| (*path, Source::new(text).product())).collect();
        structure(order::PLANTED, &files)
    }

    #[test]
    fn a_circle_of_three_files_is_found() {
        let fine = planted("pub struct A;", "use crate::a::A; pub struct B(A);", "use crate::b::B;");
        assert_eq!(fine.figures(), [0, 0, 0, 0, 0]);
        let circle = planted("use crate::c::C;", "use crate::a::A; pub struct B(A);", "use crate::b::B;");
        assert_eq!(circle.circles, [["a.rs", "b.rs", "c.rs"]]);
        assert_eq!(circle.figures(), [3, 3, 1, 0, 0]);
    }

    #[test]
    fn an_arrow_up_is_found_with_its_line() {
        let up = planted("\npub struct A;\nuse super::b::B;", "pub struct B;", "");
        let path = format!("crates/{}/src/a.rs", order::PLANTED);
        assert_eq!(up.arrows, [Finding::new(&path, 3, "uses b.rs, which is above it")]);
    }

    #[test]
    fn the_page_has_a_line_for_each_crate() {
        let page = page(&[planted("use crate::b;", "", "")]);
        assert_eq!(page.lines().count(), 2, "{page}");
        assert!(page.contains("planted          4        0        0        0        0        0"), "{page}");
    }
}
