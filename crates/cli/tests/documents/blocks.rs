//! The blocks of the documents, and how the commands in one are run.

use std::fs;
use std::time::Duration;

use crate::machines::Machines;
use crate::root;

/// A block between fences.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) page: String,
    pub(crate) line: usize,
    language: String,
    /// The comments of the line or lines before it.
    marks: Vec<String>,
    commands: Vec<String>,
}

/// What a command that runs in the foreground prints when it is ready.
const FOREGROUND: &[(&str, &str, &str)] = &[
    ("quorate up", "--demo", "HEALTHY"),
    ("quorate replica", "--liar list", " runs "),
    ("quorate resp", "--help", "RESP "),
    ("quorate nfs", "--help", "NFS "),
    ("quorate mount", "--help", "mounted on"),
    ("quorate status --dir cluster --watch", "--help", "view"),
    ("quorate status --dir cluster --serve", "--help", "http://"),
    ("quorate quorum up", "--help", "quorum fault kill"),
    ("bank up", "--help", "HEALTHY"),
];

/// How a mark begins, apart from `stop`.
const MARKS: &[&str] =
    &["not run: ", "on ", "stop on ", "dies: ", "writes from here: ", "writes until here", "again: "];

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(100);

/// Reads all documents.
pub(crate) fn documents() -> Vec<Block> {
    let (root, mut pages) = (root(), Vec::new());
    for dir in ["", "docs", "docs/adr", "docs/benchmarks", "docs/quorum", "docs/rules"] {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(&root).unwrap().display().to_string());
            }
        }
    }
    pages.sort();
    pages.iter().flat_map(|page| blocks(page, &fs::read_to_string(root.join(page)).unwrap())).collect()
}

/// Returns the blocks of a page.
fn blocks(page: &str, text: &str) -> Vec<Block> {
    let (mut found, mut marks) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        match (&mut open, text.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    page: page.to_owned(),
                    line,
                    language: language.to_owned(),
                    marks: std::mem::take(&mut marks),
                    commands: Vec::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.commands.push(text.to_owned()),
            (None, None) => match text.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
                Some(mark) => marks.push(mark.to_owned()),
                None => marks.clear(),
            },
        }
    }
    found
}

impl Block {
    /// Returns whether its lines are commands.
    pub(crate) fn is_console(&self) -> bool {
        matches!(self.language.as_str(), "" | "console" | "sh")
    }

    /// Returns the comments before it that say nothing to this test, such as one with a typing error.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        let known = |mark: &&str| *mark == "stop" || MARKS.iter().any(|start| mark.starts_with(start));
        self.marks.iter().map(String::as_str).filter(move |mark| !known(mark))
    }

    fn mark(&self, start: &str) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix(start)).map(str::trim)
    }

    /// Returns the reason if it is not run.
    pub(crate) fn why_not(&self) -> Option<&str> {
        self.mark("not run:").filter(|reason| !reason.is_empty())
    }

    /// Returns the machines that its marks name.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        let words = self.marks.iter().filter(|_| self.why_not().is_none()).flat_map(|mark| mark.split(' '));
        words.map(|word| word.trim_end_matches(':')).filter(|word| word.starts_with("10."))
    }

    /// Returns the machines for which the block before it and it are run once more.
    pub(crate) fn again(&self) -> impl Iterator<Item = &str> {
        self.mark("again:").into_iter().flat_map(|hosts| hosts.split(' '))
    }

    /// Returns whether the client that writes has ended behind this block.
    pub(crate) fn ends_writing(&self) -> bool {
        self.mark("writes until here").is_some()
    }

    /// Returns the machine and the directory of a client that writes from now on.
    pub(crate) fn writes(&self) -> Option<(&str, &str)> {
        self.mark("writes from here:")?.split_once(' ')
    }

    /// Runs its commands; on another machine, if that is given.
    pub(crate) fn run(&self, machines: &mut Machines, other: Option<&str>) {
        if self.why_not().is_some() {
            return;
        }
        if self.marks.iter().any(|mark| mark == "stop") {
            machines.stop(None);
        }
        if let Some((host, word)) = self.mark("stop on ").and_then(|mark| mark.split_once(": "))
            && host != "each"
        {
            machines.stop(Some((other.unwrap_or(host), word)));
        }
        if let Some(host) = self.mark("dies:") {
            machines.lose(host);
        }
        let hosts: Vec<&str> = match (other, self.mark("on each:"), self.mark("on ")) {
            (Some(other), ..) => vec![other],
            (None, Some(each), _) => each.split(' ').collect(),
            (None, None, Some(host)) => vec![host],
            (None, None, None) => vec!["here"],
        };
        for host in hosts {
            if let Some(word) = self.mark("stop on each:") {
                machines.stop(Some((host, word)));
            }
            // The replica of 10.0.0.1 is replica-0.
            let last = host.rsplit('.').next().and_then(|last| last.parse::<usize>().ok());
            let own = format!("replica-{}", last.map_or(0, |last| last - 1));
            for command in self.commands.iter().filter(|command| !command.is_empty()) {
                self.run_one(machines, host, &command.replace("replica-0", &own));
            }
        }
    }

    fn run_one(&self, machines: &mut Machines, host: &str, command: &str) {
        let place = format!("{}:{}, on {host}: {command}", self.page, self.line);
        let plain = command
            .replace("cargo run --release --example bank -- ", "bank ")
            .replace("cargo run --release -- ", "quorate ");
        let ready =
            FOREGROUND.iter().find(|(start, but, _)| plain.starts_with(start) && !plain.contains(but));
        match ready {
            Some((.., ready)) => machines.start(host, command, ready, &place, PATIENCE),
            // `status` says with its status what it has found.
            None => machines.run(host, command, &place, plain.starts_with("quorate status"), PATIENCE),
        }
    }
}
