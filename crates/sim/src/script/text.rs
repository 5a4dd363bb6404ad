//! The form of a trace: comments, and blocks of commands and their output.

/// Stands between commands and their output.
const RULE: &str = "----";
/// The output of commands without output.
const NOTHING: &str = "ok";

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A comment or an empty line: it stays as it is.
    Verbatim(&'a str),
    /// Commands, with the number of their line. Their output is left out.
    Block {
        /// The commands.
        commands: Vec<(usize, &'a str)>,
    },
}

/// Takes a trace apart. The output of a block reaches to the next empty line.
pub(super) fn items(trace: &str) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    let mut lines = trace.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            items.push(Item::Verbatim(line));
            continue;
        }
        let mut commands = vec![(number, line)];
        while let Some((line, number)) = lines.next_if(|(line, _)| !line.is_empty() && *line != RULE) {
            commands.push((number, line));
        }
        if lines.next_if(|(line, _)| *line == RULE).is_some() {
            while lines.next_if(|(line, _)| !line.is_empty()).is_some() {}
        }
        items.push(Item::Block { commands });
    }
    items
}

/// Appends a line.
pub(super) fn put_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// Appends what a block has put out.
pub(super) fn put_output(out: &mut String, output: &str) {
    put_line(out, RULE);
    if output.is_empty() {
        put_line(out, NOTHING);
    }
    out.push_str(output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_apart() {
        let trace =
            "# why\ncluster f=1\n----\nn=4\n\nrequest c0 get x\nrun\n\n# and then\nrun\n----\nold\nolder\n";
        let block = |commands: &[(usize, &'static str)]| Item::Block { commands: commands.to_vec() };
        let expected = [
            Item::Verbatim("# why"),
            block(&[(2, "cluster f=1")]),
            Item::Verbatim(""),
            block(&[(6, "request c0 get x"), (7, "run")]),
            Item::Verbatim(""),
            Item::Verbatim("# and then"),
            block(&[(10, "run")]),
        ];
        assert_eq!(items(trace), expected);
    }
}
