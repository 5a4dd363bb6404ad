//! Golden traces: sequences of protocol steps, written as commands with their output (style §11).
//!
//! A trace is a text file: comments, and blocks of commands, a line `----`, and their output.
//!
//! ```text
//! # [OSDI99 §4.2] The primary proposes, the backups agree.
//! cluster f=1
//! ----
//! n=4 quorum=3
//!
//! request c0 put x 1
//! run
//! ----
//! c0 -> r0  REQUEST     t=1 "put x 1"
//! r0  .    pre-prepared n=1
//! ...
//! ```
//!
//! `->` is a message, `.` a milestone, `!` something executed, `#` a fault injected into a node. Two rules
//! make a trace readable. Messages take 1 ms, and those that arrive at one moment do so by receiver, then by
//! sender. And time passes only when the script says so: `run` delivers messages until none is on its way,
//! and no timer runs out in that time, however long that takes; `time` and `run until` let timers run out.
//!
//! A new cluster has the plain algorithm of [OSDI99 §4]: every optimisation of §5 is off, nothing is kept on
//! disk, and no STATUS is sent, until an option says otherwise.
//!
//! | Command | Does |
//! |---|---|
//! | `cluster f=1 [KEY=VALUE]...` | begins; the options are in `options` |
//! | `request c0 OPERATION`, `read c0 OPERATION` | a client asks, in order or on the read-only path |
//! | `run`, `deliver [KIND] [from A] [to B]` | delivers all messages; those that are on their way now |
//! | `time 100ms`, `run until [WHO] WORDS` | lets time pass; until a line with these words, a minute at most |
//! | `timer r1 [NAME]` | this timer runs out now |
//! | `drop`, `hold KIND\|all [from A] [to B]` | such messages get lost, or are kept, from now on |
//! | `pass KIND\|all [from A] [to B]` | such messages arrive again; those that are kept stay so |
//! | `partition r0 r1 \| r2 r3`, `heal` | cuts the network; ends cuts, drops and holds |
//! | `repeat KIND from A to B` | the network delivers the last such message once more |
//! | `crash`, `restart`, `wipe r1...` | of a machine; of its disk, too |
//! | `damage r1 NUMBER` | flips a bit of its state; the number picks one |
//! | `pause r1 1s`, `resume r1` | stops a process for a while |
//! | `snapshot r1`, `put-back r1` | copies a disk; crashes the machine and puts the copy in |
//! | `lie r0 NAME`, `lie r0 no-more` | a liar of the roster stands in front of a faulty replica |
//! | `say r0 -> r1 KIND KEY=VALUE...` | a faulty replica, or a client, says this; see `say` |
//! | `show r1...` | the state card |
//! | `lanes` | draws what has happened since the last `lanes`, with one lane a node |
//! | `quiet`, `loud` | turns output off while the scene is set, and on again |
//! | `watch r1 c0`, `watch all` | shows what these nodes do, and no others |
//! | `hide KIND...`, `unhide KIND...` | leaves messages of these kinds out; NEW-KEY is, from the beginning |
//! | `hide rejected`, `unhide rejected` | leaves out what is rejected |

use crate::script::command::{Command, parse};
use crate::script::stage::Stage;
use crate::script::text::Item;

mod command;
pub mod diff;
mod options;
mod puppet;
mod say;
mod stage;
mod text;
mod traffic;

/// The result of playing a trace.
#[derive(Clone, Debug)]
pub struct Played {
    /// The trace with the output that it has now.
    pub text: String,
    /// Why it is invalid: an unknown command, or a broken rule of the protocol.
    pub troubles: Vec<ScriptError>,
}

/// Something that is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line of the command, from 1.
    pub line: usize,
    /// The error.
    pub text: String,
}

/// Plays a trace from its first command to its last.
pub fn play(trace: &str) -> Played {
    let mut played = Played { text: String::new(), troubles: Vec::new() };
    let mut reader = Reader { stage: None };
    for item in text::items(trace) {
        match item {
            Item::Verbatim(line) => text::put_line(&mut played.text, line),
            Item::Block { commands } => {
                let mut output = String::new();
                for (line, command) in &commands {
                    text::put_line(&mut played.text, command);
                    let trouble = |text| ScriptError { line: *line, text };
                    match reader.play(command) {
                        Ok(text) => output.push_str(&text),
                        Err(text) => played.troubles.push(trouble(text)),
                    }
                    let broken = reader.stage.as_ref().and_then(Stage::violation);
                    if let Some(broken) = broken.filter(|_| played.troubles.is_empty()) {
                        played.troubles.push(trouble(broken));
                    }
                }
                text::put_output(&mut played.text, &output);
            }
        }
    }
    if let Some(Err(text)) = reader.stage.as_ref().map(Stage::check_history) {
        played.troubles.push(ScriptError { line: trace.lines().count(), text });
    }
    played
}

/// The one who reads the commands.
struct Reader {
    stage: Option<Stage>,
}

impl Reader {
    /// Executes a line. Returns its output.
    fn play(&mut self, line: &str) -> Result<String, String> {
        match (parse(line)?, &mut self.stage) {
            (Command::Cluster(options), stage) => {
                let (new, text) = Stage::new(&options)?;
                *stage = Some(new);
                Ok(text)
            }
            (_, None) => Err("a trace begins with `cluster`".to_owned()),
            (command, Some(stage)) => stage.play(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUORUM: &str = "\
# A request with one backup down.
cluster f=1
crash r3
----

request c0 put x 1
run
";

    #[test]
    fn a_trace_is_completed_and_then_stays_as_it_is() {
        let once = play(QUORUM);
        assert_eq!(once.troubles, []);
        assert!(once.text.contains("n=4 quorum=3\nr3  #    crashes\n"), "{}", once.text);
        assert!(once.text.contains("c0  .    accepts t=1 ok\n"), "{}", once.text);
        assert_eq!(play(&once.text).text, once.text);
    }

    #[test]
    fn what_is_no_command_is_told_with_its_line() {
        let played = play("cluster f=1\n\nrequest c0 put x 1\nrunn\n");
        let trouble = &played.troubles[0];
        assert_eq!((trouble.line, played.troubles.len()), (4, 1));
        assert!(trouble.text.contains("runn"), "{}", trouble.text);
        assert_eq!(play("run\n").troubles.len(), 1);
    }

    /// Simultaneous messages arrive by receiver: what a replica does at one moment stands together.
    #[test]
    fn what_one_replica_does_stands_together() {
        let played = play("cluster f=1\n\nrequest c0 put x 1\nrun\n");
        let prepared: Vec<&str> = played.text.lines().filter(|line| line.contains(" prepared n=1")).collect();
        let expected: Vec<String> = (0..4).map(|i| format!("r{i}  .    prepared n=1")).collect();
        assert_eq!(prepared, expected);
    }

    #[test]
    fn no_timer_runs_out_while_messages_are_delivered() {
        let story = "cluster f=1\ndrop REQUEST to r0\nrequest c0 put x 1\nrun\n";
        assert!(!play(story).text.contains("retransmits"));
        let later = format!("{story}time 60ms\n");
        assert!(play(&later).text.contains("c0  .    retransmits t=1 (1)"));
    }
}
