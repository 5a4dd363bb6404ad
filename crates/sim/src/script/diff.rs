//! The differences between two versions of a trace.

/// Lines around a change that are shown with it.
const CONTEXT: usize = 2;

/// A line of one version or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// Shows what stands in `new` and did not in `old`: `-` for what is gone, `+` for what is new, with the
/// number of the line in `old`.
pub fn show(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let edits = edits(&old, &new);
    let changed = |edit: &Edit<'_>| !matches!(edit, Edit::Same(_));
    let mut out = String::new();
    let (mut number, mut shown_to) = (0, 0);
    for (i, edit) in edits.iter().enumerate() {
        number += usize::from(!matches!(edit, Edit::New(_)));
        let near = i.saturating_sub(CONTEXT)..(i + CONTEXT + 1).min(edits.len());
        if !edits[near].iter().any(changed) {
            continue;
        }
        if shown_to < i {
            out.push_str("  ...\n");
        }
        shown_to = i + 1;
        let (mark, line) = match edit {
            Edit::Same(line) => (' ', line),
            Edit::Gone(line) => ('-', line),
            Edit::New(line) => ('+', line),
        };
        out.push_str(format!("{number:>4} {mark} {line}").trim_end());
        out.push('\n');
    }
    out
}

/// Returns the shortest list of edits that leads from `old` to `new`.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    // common[i][j]: how many lines the ends from `old[i]` and `new[j]` on have in common.
    let width = new.len() + 1;
    let mut common = vec![0_usize; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut edits = Vec::new();
    while i < old.len() || j < new.len() {
        let (gone, new_one) = (i < old.len(), j < new.len());
        if gone && new_one && old[i] == new[j] {
            edits.push(Edit::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if gone && (!new_one || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            edits.push(Edit::Gone(old[i]));
            i += 1;
        } else {
            edits.push(Edit::New(new[j]));
            j += 1;
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_what_stands_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\ni\n";
        let expected =
            "  ...\n   3   c\n   4   d\n   5 - e\n   5 + E\n   6   f\n   7   g\n   8   h\n   8 + i\n";
        assert_eq!(show(old, new), expected);
        assert_eq!(show(old, old), "");
    }
}
