//! Shows a recording: the replica executes its inputs again, and its actions are printed as lines of a trace. The
//! recording may come from a simulated host or from a node.

use quorate_pbft::recording::{RecordingError, play};
use quorate_pbft::step::{Action, Actions, Form, Input, Recipient};
use quorate_wire::sign::Signer;

use crate::describe::{self, Words};
use crate::trace::{Line, What};

/// The content of a recording.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The replica's actions, a line for each message and milestone. The step is the input's number, from 1.
    pub lines: Vec<Line>,
    /// Its state after the last input that was replayed.
    pub state: String,
}

/// Steps through a recording, up to input `at`, or to its end for 0.
///
/// # Errors
///
/// The bytes are not a recording.
pub fn show(bytes: &[u8], words: &dyn Words, at: u64) -> Result<Shown, RecordingError> {
    show_signed(bytes, Signer::Toy([0; 32]), words, at)
}

/// Steps through a recording with the signing key that the replica had: its signatures are the same too.
///
/// # Errors
///
/// The bytes are not a recording.
pub fn show_signed(
    bytes: &[u8],
    signer: Signer,
    words: &dyn Words,
    at: u64,
) -> Result<Shown, RecordingError> {
    let mut shown = Shown { lines: Vec::new(), state: String::new() };
    play(bytes, signer, |index, now, input, replica, actions| {
        let step = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
        if at != 0 && step > at {
            return;
        }
        let who = replica.id().to_string();
        for what in told(input, actions, words) {
            shown.lines.push(Line { step, at: now.mono_ns, who: who.clone(), what });
        }
        shown.state = format!("{:#?}", replica.state());
    })?;
    Ok(shown)
}

/// Describes the actions of a step.
fn told(input: &Input<'_>, actions: &Actions, words: &dyn Words) -> Vec<What> {
    let mut told = Vec::new();
    if let Input::Timer(timer) = input {
        told.push(What::Fault(format!("timer {timer:?} runs out")));
    }
    for action in actions.list() {
        if let Action::Send { to, kind, form, bytes, .. } = action {
            let bytes = actions.bytes(*bytes);
            let text = match form {
                Form::Body => describe::message(*kind, bytes, words),
                Form::Frame => describe::frame(bytes, words),
            };
            let to = match to {
                Recipient::All => "*".to_owned(),
                Recipient::Replica(id) => id.to_string(),
                Recipient::Client(client) | Recipient::Collected { client, .. } => client.to_string(),
            };
            told.push(What::Sent { to, text });
        } else if let Action::Report(milestone) = action {
            told.push(What::Milestone(describe::milestone(milestone)));
        }
    }
    told
}
