//! The result of one check.

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    Ok,
    Warn,
    Bad,
}

impl Grade {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One check, with its result.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    /// What was checked: keys, ports, ...
    pub(super) check: &'static str,
    /// The node, directory or machine that was checked.
    pub(super) of: String,
    pub(super) what: String,
    /// What to do.
    pub(super) next: Option<String>,
}

impl Finding {
    pub(super) fn new(
        grade: Grade,
        check: &'static str,
        of: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self { grade, check, of: of.into(), what: what.into(), next: None }
    }

    pub(super) fn next(self, what: impl Into<String>) -> Self {
        Self { next: Some(what.into()), ..self }
    }

    pub(super) fn line(&self) -> String {
        let next = self.next.as_ref().map_or(String::new(), |next| format!("\n      do: {next}"));
        format!("{:<4}  {:<8} {:<10} {}{next}", self.grade.name(), self.check, self.of, self.what)
    }
}

/// A number with its noun.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
