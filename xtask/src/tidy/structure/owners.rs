//! Structs with state of their own: which of their fields others can write, and which of their methods
//! are called from one file to another.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Modules;
use super::tokens::{Token, after_generics, closed, is_name, text};

/// A struct, by the module that declares it and its name.
type Owner<'a> = (usize, &'a str);

/// What is found about the structs of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owners {
    /// Fields that are not private, of structs with a method that changes them: `Slot.digest`.
    pub(super) open: Vec<String>,
    /// Methods with `&mut self` that are called on `self` in another file than their own: `Replica.advance`.
    /// Calls in the file that declares the struct, which dispatches, do not count. Each with its file.
    pub(super) verbs: Vec<(String, String)>,
}

#[derive(Default)]
struct OwnersFound<'a> {
    open_fields: BTreeMap<Owner<'a>, Vec<&'a str>>,
    /// Structs with a method that changes them.
    changing: BTreeSet<Owner<'a>>,
    /// Methods that change the struct, with the file that they are in.
    verbs: BTreeMap<(Owner<'a>, &'a str), usize>,
    /// Calls of a method on `self`: by struct, method and file.
    calls: BTreeSet<(Owner<'a>, &'a str, usize)>,
}

/// Looks at every struct of a crate.
pub(super) fn owners(modules: &Modules<'_>) -> Owners {
    let mut found = OwnersFound::default();
    for (index, module) in modules.all.iter().enumerate() {
        let tokens = &module.tokens;
        for at in 0..tokens.len() {
            if begins_item(tokens, at) && tokens[at].text == "impl" {
                found.look_at_impl(modules, index, at);
            } else if tokens[at].text == "struct" && is_name(text(tokens, at + 1)) {
                found.open_fields.insert((index, tokens[at + 1].text), open_fields(tokens, at + 2));
            }
        }
    }
    let mut owners = Owners::default();
    for (owner, fields) in &found.open_fields {
        if found.changing.contains(owner) {
            owners.open.extend(fields.iter().map(|field| format!("{}.{field}", owner.1)));
        }
    }
    for ((owner, verb), file) in &found.verbs {
        let home = modules.all[owner.0].file;
        let crosses =
            |&(o, v, f): &(Owner<'_>, &str, usize)| o == *owner && v == *verb && f != *file && f != home;
        if found.calls.iter().any(crosses) {
            owners.verbs.push((format!("{}.{verb}", owner.1), modules.files[*file].to_owned()));
        }
    }
    owners
}

impl<'a> OwnersFound<'a> {
    fn look_at_impl(&mut self, modules: &Modules<'a>, index: usize, start: usize) {
        let module = &modules.all[index];
        let tokens = &module.tokens;
        let Some((name, open, of_trait)) = header(tokens, start) else { return };
        let owner = (modules.defining(index, &[name]).unwrap_or(index), name);
        let end = closed(tokens, open);
        let mut at = open + 1;
        while at < end {
            let is_verb = tokens[at].text == "fn" && changes_self(tokens, at + 2);
            if is_verb {
                self.changing.insert(owner);
                if !of_trait {
                    self.verbs.insert((owner, text(tokens, at + 1)), module.file);
                }
            }
            if tokens[at].text == "self" && text(tokens, at + 1) == "." && is_called(tokens, at + 2) {
                self.calls.insert((owner, text(tokens, at + 2), module.file));
            }
            at += 1;
        }
    }
}

/// Says whether an item can begin here: `impl` is also a part of types.
fn begins_item(tokens: &[Token<'_>], at: usize) -> bool {
    at == 0 || matches!(text(tokens, at - 1), ";" | "}" | "{" | "]" | "unsafe")
}

/// Returns the name of the type of an `impl`, where its block opens, and whether a trait is implemented.
fn header<'a>(tokens: &[Token<'a>], start: usize) -> Option<(&'a str, usize, bool)> {
    let mut at = after_generics(tokens, start + 1);
    let (mut name, mut of_trait, mut done) = ("", false, false);
    loop {
        match text(tokens, at) {
            "" | ";" => return None,
            "{" => return (!name.is_empty()).then_some((name, at, of_trait)),
            "for" => (of_trait, done) = (true, false),
            "where" => done = true,
            "<" => {
                at = after_generics(tokens, at);
                continue;
            }
            "(" | "[" => {
                at = closed(tokens, at);
                continue;
            }
            word if is_name(word) && !done => name = word,
            _ => {}
        }
        at += 1;
    }
}

/// Says whether the parameters that follow a method's name begin with `&mut self`.
fn changes_self(tokens: &[Token<'_>], at: usize) -> bool {
    let open = after_generics(tokens, at);
    ["(", "&", "mut", "self"].iter().enumerate().all(|(offset, word)| text(tokens, open + offset) == *word)
}

/// Says whether a name is followed by arguments, perhaps after `::<T>`.
fn is_called(tokens: &[Token<'_>], name: usize) -> bool {
    let after = if text(tokens, name + 1) == "::" { after_generics(tokens, name + 2) } else { name + 1 };
    is_name(text(tokens, name)) && text(tokens, after) == "("
}

/// Returns the fields of a struct that are not private; `start` is behind its name.
fn open_fields<'a>(tokens: &[Token<'a>], start: usize) -> Vec<&'a str> {
    let mut at = after_generics(tokens, start);
    let mut bounded = false;
    loop {
        match text(tokens, at) {
            "" | ";" => return Vec::new(),
            "where" => bounded = true,
            "{" => break,
            "(" if !bounded => break,
            "<" => {
                at = after_generics(tokens, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    let named = text(tokens, at) == "{";
    let end = closed(tokens, at);
    let mut found = Vec::new();
    at += 1;
    while at + 1 < end {
        while text(tokens, at) == "#" {
            at = closed(tokens, at + 1);
        }
        if text(tokens, at) == "pub" {
            at += 1;
            // `pub(crate)`, but not `pub (u8, u8)`.
            if text(tokens, at) == "(" && matches!(text(tokens, at + 1), "crate" | "super" | "self" | "in") {
                at = closed(tokens, at);
            }
            found.push(if named { text(tokens, at) } else { "0" });
        }
        at = field_end(tokens, at, end);
    }
    found
}

/// Returns the index behind the comma that ends a field.
fn field_end(tokens: &[Token<'_>], mut at: usize, end: usize) -> usize {
    while at + 1 < end {
        match text(tokens, at) {
            "," => return at + 1,
            "(" | "[" | "{" => at = closed(tokens, at),
            "<" => at = after_generics(tokens, at),
            _ => at += 1,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::super::tests::modules_of;
    use super::*;

    fn of(files: &[(&str, &str)]) -> Owners {
        modules_of(files, owners)
    }

    const HOME: &str = "mod b; pub struct Replica { pub(crate) view: u64, log: Vec<(u8, u8)>, pub(super) n: fn(u8) -> u8 }\n\
                        impl Replica { pub fn step(&mut self) { self.advance(); } fn view(&self) {} }";

    #[test]
    fn an_open_field_of_a_struct_that_changes_itself_is_found() {
        let found = of(&[("lib.rs", HOME), ("b.rs", "")]);
        assert_eq!(found.open, ["Replica.view", "Replica.n"]);
        let made_private = HOME.replace("pub(crate) view", "view");
        assert_eq!(of(&[("lib.rs", &made_private), ("b.rs", "")]).open, ["Replica.n"]);
    }

    #[test]
    fn data_without_a_verb_may_be_open() {
        let data = "pub struct Vote { pub seq: u64 } impl Vote { fn seq(&self) {} }";
        assert!(of(&[("lib.rs", data)]).open.is_empty());
        let changed = "pub struct Vote(pub u64, u64); impl Iterator for Vote { fn next(&mut self) {} }";
        assert_eq!(of(&[("lib.rs", changed)]).open, ["Vote.0"]);
    }

    #[test]
    fn a_verb_that_is_called_in_another_file_is_found() {
        let handlers = "use crate::Replica; impl Replica { fn advance(&mut self) {} fn own(&mut self) { self.advance(); } }";
        let none = of(&[("lib.rs", HOME), ("b.rs", handlers)]);
        assert!(none.verbs.is_empty(), "{none:?}");
        let home = HOME.replace("mod b;", "mod b; mod c;");
        let other =
            "use crate::Replica; impl Replica { fn other(&mut self) { self.advance(); self.view(); } }";
        let found = of(&[("lib.rs", &home), ("b.rs", handlers), ("c.rs", other)]);
        assert_eq!(found.verbs, [("Replica.advance".to_owned(), "b.rs".to_owned())]);
    }

    #[test]
    fn a_verb_of_the_declaring_file_that_a_handler_calls_is_found() {
        let handlers = "use crate::Replica; impl Replica { fn own(&mut self) { self.step(); } }";
        let found = of(&[("lib.rs", HOME), ("b.rs", handlers)]);
        assert_eq!(found.verbs, [("Replica.step".to_owned(), "lib.rs".to_owned())]);
    }
}
