//! Parses the commands of a script.

use quorate_pbft::Timer;
use quorate_wire::Kind;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Begins with a new cluster.
    Cluster(Vec<(String, String)>),
    /// A client asks.
    Ask { client: String, operation: String, read_only: bool },
    /// Delivers all messages.
    Run,
    /// Delivers those that are on their way now, as far as the filter goes.
    Deliver(Filter),
    /// Lets this many nanoseconds pass.
    Time(u64),
    /// Lets time pass until a line begins with these words, of this node if one is named.
    Until { who: Option<String>, words: String },
    /// A timer runs out.
    Timer(String, Timer),
    /// Such messages get lost from now on.
    Drop(Filter),
    /// Such messages are kept from now on.
    Hold(Filter),
    /// Such messages arrive again from now on.
    Pass(Filter),
    /// The last such message comes once more.
    Repeat(Filter),
    /// Cuts the links between groups.
    Partition(Vec<Vec<String>>),
    /// Ends cuts, drops and holds.
    Heal,
    /// A fault is injected into replicas.
    Fault(Fault, Vec<String>),
    /// A liar of the roster, or none.
    Lie(String, Option<String>),
    /// A faulty node says something.
    Say(Saying),
    /// State cards.
    Show(Vec<String>),
    /// Draws what has happened.
    Lanes,
    /// Output off, or on.
    Loud(bool),
    /// The replicas to show; none stands for all.
    Watch(Vec<String>),
    /// Kinds of messages left out, or not any more.
    Hide(Vec<Kind>, bool),
    /// Messages rejected left out, or not any more.
    HideRejected(bool),
}

/// A fault of a replica's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Crash,
    Restart,
    Wipe,
    /// The damage depends on the number.
    Damage(u64),
    Pause(u64),
    Resume,
    Snapshot,
    PutBack,
}

/// Which messages: of a kind, from these, to those; empty or none stands for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) kind: Option<Kind>,
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
}

/// A message put in someone's mouth: its kind and its fields as they stand in the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saying {
    pub(super) who: String,
    pub(super) to: String,
    pub(super) kind: Kind,
    /// Words without a value, and an operation in quotes.
    pub(super) words: Vec<String>,
    pub(super) fields: Vec<(String, String)>,
}

impl Saying {
    /// Returns whether a word stands there.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    /// Returns a field as it is written.
    pub(super) fn field(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Returns a field that is a number.
    pub(super) fn number(&self, key: &str) -> Result<u64, String> {
        let value = self.field(key).ok_or_else(|| format!("{} needs {key}=NUMBER", self.kind.name()))?;
        value.parse().map_err(|_| format!("{key}={value}: a number was expected"))
    }
}

/// Reads a line.
pub(super) fn parse(line: &str) -> Result<Command, String> {
    let (verb, rest) = line.split_once(' ').map_or((line, ""), |(verb, rest)| (verb, rest.trim()));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Ok(match (verb, words.as_slice()) {
        ("cluster", options) => Command::Cluster(options.iter().map(|o| pair(o)).collect::<Result<_, _>>()?),
        ("request" | "read", [client, operation @ ..]) => Command::Ask {
            client: (*client).to_owned(),
            operation: operation.join(" "),
            read_only: verb == "read",
        },
        ("run", []) => Command::Run,
        ("run", ["until", who, words @ ..]) if is_node(who) => {
            Command::Until { who: Some((*who).to_owned()), words: words.join(" ") }
        }
        ("run", ["until", words @ ..]) => Command::Until { who: None, words: words.join(" ") },
        ("deliver", filter) => Command::Deliver(read_filter(filter)?),
        ("drop", [_, ..]) => Command::Drop(read_filter(&words)?),
        ("hold", [_, ..]) => Command::Hold(read_filter(&words)?),
        ("pass", [_, ..]) => Command::Pass(read_filter(&words)?),
        ("repeat", [_, ..]) => Command::Repeat(read_filter(&words)?),
        ("time", [span]) => Command::Time(duration(span)?),
        ("timer", [who]) => Command::Timer((*who).to_owned(), Timer::Request),
        ("timer", [who, name]) => Command::Timer((*who).to_owned(), timer(name)?),
        ("partition", [_, ..]) => Command::Partition(rest.split('|').map(list).collect()),
        ("heal", []) => Command::Heal,
        ("crash", [_, ..]) => Command::Fault(Fault::Crash, list(rest)),
        ("restart", [_, ..]) => Command::Fault(Fault::Restart, list(rest)),
        ("wipe", [_, ..]) => Command::Fault(Fault::Wipe, list(rest)),
        ("damage", [who, number]) => {
            let number = number.parse().map_err(|_| format!("`{number}`: a number was expected"))?;
            Command::Fault(Fault::Damage(number), list(who))
        }
        ("pause", [who, span]) => Command::Fault(Fault::Pause(duration(span)?), list(who)),
        ("resume", [_, ..]) => Command::Fault(Fault::Resume, list(rest)),
        ("snapshot", [_, ..]) => Command::Fault(Fault::Snapshot, list(rest)),
        ("put-back", [_, ..]) => Command::Fault(Fault::PutBack, list(rest)),
        ("lie", [who, "no-more"]) => Command::Lie((*who).to_owned(), None),
        ("lie", [who, how]) => Command::Lie((*who).to_owned(), Some((*how).to_owned())),
        ("say", [who, "->", to, kind, ..]) => {
            let fields = rest.split_once(kind).map_or("", |(_, fields)| fields);
            Command::Say(read_saying(who, to, kind, fields)?)
        }
        ("show", [_, ..]) => Command::Show(list(rest)),
        ("lanes", []) => Command::Lanes,
        ("quiet", []) => Command::Loud(false),
        ("loud", []) => Command::Loud(true),
        ("watch", ["all"]) => Command::Watch(Vec::new()),
        ("watch", [_, ..]) => Command::Watch(list(rest)),
        ("hide" | "unhide", ["rejected"]) => Command::HideRejected(verb == "hide"),
        ("hide" | "unhide", [_, ..]) => {
            let kinds = words.iter().map(|name| kind_of(name)).collect::<Result<_, _>>()?;
            Command::Hide(kinds, verb == "hide")
        }
        _ => return Err(format!("`{line}` is no command")),
    })
}

/// Splits `KEY=VALUE`.
fn pair(word: &str) -> Result<(String, String), String> {
    let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: KEY=VALUE was expected"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads names, with spaces or commas between them.
fn list(names: &str) -> Vec<String> {
    names.split([' ', ',']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn is_node(word: &str) -> bool {
    word.strip_prefix(['r', 'c']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Reads a time with its unit, in nanoseconds.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(format!("`{text}` is no time: 250us, 100ms, 2s, 1min, 1h")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no time"))?;
    number.checked_mul(scale).ok_or_else(|| format!("`{text}` is too long"))
}

fn kind_of(name: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| format!("`{name}` is no kind of message"))
}

fn timer(name: &str) -> Result<Timer, String> {
    Ok(match name {
        "request" => Timer::Request,
        "new-view" => Timer::NewView,
        "status" => Timer::Status,
        "flush" => Timer::Flush,
        "body-fetch" => Timer::BodyFetch,
        "relay" => Timer::Relay,
        "recovery" => Timer::Recovery,
        "null-batch" => Timer::NullBatch,
        "pause" => Timer::Pause,
        _ => return Err(format!("`{name}` is no timer")),
    })
}

fn read_filter(words: &[&str]) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let mut rest = words;
    if let [kind, others @ ..] = rest
        && !matches!(*kind, "from" | "to")
    {
        filter.kind = if *kind == "all" { None } else { Some(kind_of(kind)?) };
        rest = others;
    }
    loop {
        match rest {
            [] => return Ok(filter),
            ["from", names, others @ ..] => (filter.from, rest) = (list(names), others),
            ["to", names, others @ ..] => (filter.to, rest) = (list(names), others),
            _ => return Err(format!("`{}`: [KIND|all] [from A] [to B] was expected", words.join(" "))),
        }
    }
}

fn read_saying(who: &str, to: &str, kind: &str, fields: &str) -> Result<Saying, String> {
    let mut saying = Saying {
        who: who.to_owned(),
        to: to.to_owned(),
        kind: kind_of(kind)?,
        words: Vec::new(),
        fields: Vec::new(),
    };
    // What stands in quotes is one word.
    for (i, part) in fields.split('"').enumerate() {
        if i % 2 == 1 {
            saying.fields.push(("operation".to_owned(), part.to_owned()));
            continue;
        }
        for word in part.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => saying.fields.push((key.to_owned(), value.to_owned())),
                None => saying.words.push(word.to_owned()),
            }
        }
    }
    Ok(saying)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let filter = Filter { kind: Some(Kind::Commit), from: names(&["r1", "r2"]), to: names(&["r3"]) };
        assert_eq!(parse("drop COMMIT from r1,r2 to r3"), Ok(Command::Drop(filter)));
        assert_eq!(parse("deliver"), Ok(Command::Deliver(Filter::default())));
        assert_eq!(parse("time 250us"), Ok(Command::Time(250_000)));
        assert_eq!(parse("timer r1 new-view"), Ok(Command::Timer("r1".to_owned(), Timer::NewView)));
        let groups = vec![names(&["r0", "r1"]), names(&["r2", "r3"])];
        assert_eq!(parse("partition r0 r1 | r2,r3"), Ok(Command::Partition(groups)));
        let until = Command::Until { who: Some("r2".to_owned()), words: "entered v=1".to_owned() };
        assert_eq!(parse("run until r2 entered v=1"), Ok(until));
    }

    #[test]
    fn what_is_said_has_fields_words_and_an_operation() {
        let Ok(Command::Say(saying)) = parse("say c0 -> r1 REQUEST t=1 \"put x 2\" signed") else { panic!() };
        assert_eq!((saying.kind, saying.number("t")), (Kind::Request, Ok(1)));
        assert_eq!(saying.field("operation"), Some("put x 2"));
        assert!(saying.has("signed") && !saying.has("read-only"));
        assert!(saying.number("n").is_err());
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in [
            "",
            "runs",
            "drop",
            "drop NOTHING",
            "time 5",
            "timer r1 tea",
            "cluster f",
            "hold all at r1",
            "lie r0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
