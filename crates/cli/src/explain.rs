//! `quorate explain CODE`.

use std::process::ExitCode;

use clap::Args;

use crate::code::Code;
use crate::fail::{Failure, Outcome, nearest};
use crate::out;

/// Describe an error code and what to do about it
///
/// Without a code, lists all of them.
///
///   quorate explain Q004
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explain {
    /// The error code, such as Q004
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(&self) -> Outcome {
        let Some(typed) = &self.code else {
            for code in Code::ALL {
                out::line(format!("{code}  {}", code.title()));
            }
            return Ok(ExitCode::SUCCESS);
        };
        let wanted = typed.to_uppercase();
        if let Some(code) = Code::ALL.iter().find(|code| code.number() == wanted) {
            out::line(format!("{code}: {}\n\n{}", code.title(), code.text()));
            return Ok(ExitCode::SUCCESS);
        }
        let near = nearest(&wanted, Code::ALL.iter().map(|code| code.number()));
        let next = near.map_or("quorate explain".to_owned(), |code| format!("quorate explain {code}"));
        Err(Failure::new(Code::Unknown, format!("no code `{typed}`")).next(next))
    }
}
