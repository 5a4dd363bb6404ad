//! Gaps in what is tested, on record: `docs/open.md` lists faults and reasons that no scenario, test or
//! trace shows yet. A gap that is not on the list breaks the project rules, and so does an entry whose gap
//! is closed: the list can only be true.

use super::Finding;
use crate::tree::Tree;

/// The list. An entry is a line `- text of the finding`.
pub(super) const LIST: &str = "docs/open.md";

/// The list, and which of its entries have been met.
pub(super) struct Open {
    entries: Vec<(String, bool)>,
}

impl Open {
    /// Reads the list.
    pub(super) fn of(tree: &Tree) -> Self {
        let text = tree.get(LIST).unwrap_or_default();
        let entries = text.lines().filter_map(|line| line.strip_prefix("- "));
        Self { entries: entries.map(|says| (says.to_owned(), false)).collect() }
    }

    /// Says whether a finding is on the list. Only gaps in what is tested can be.
    pub(super) fn lists(&mut self, finding: &Finding) -> bool {
        let gap = finding.says.contains(" has no scenario") || finding.says.contains(" occurs in no trace");
        let entry = self.entries.iter_mut().find(|(says, _)| gap && *says == finding.says);
        entry.map(|(_, met)| *met = true).is_some()
    }

    /// Returns the entries that no finding has met.
    pub(super) fn closed(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|(_, met)| !met).map(|(says, _)| says.as_str())
    }

    /// Returns how many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gaps_in_tests_can_be_on_the_list_and_closed_ones_are_told() {
        let says = ["B7 has no scenario, test or reason", "K1 has no scenario and no reason", "600 lines"];
        let mut open = Open { entries: says.map(|says| (says.to_owned(), false)).to_vec() };
        assert!(open.lists(&Finding::new("docs/faults.md", 3, says[0])));
        assert!(!open.lists(&Finding::new("crates/x.rs", 0, says[2])));
        assert!(!open.lists(&Finding::new("docs/faults.md", 3, "B8 has no scenario, test or reason")));
        assert_eq!(open.closed().collect::<Vec<_>>(), [says[1], says[2]]);
    }
}
