//! The table of what each crate may have at most. More is an error, and so is less that is not entered.

use std::collections::BTreeMap;

use super::{FIGURES, Structure};
use crate::tidy::Finding;

/// The table.
pub(in crate::tidy) const TABLE: &str = "xtask/structure.txt";

type Figures = [usize; FIGURES.len()];

/// Compares the crates with the table.
pub(super) fn check(table: &str, crates: &[Structure]) -> Vec<Finding> {
    let mut rows = BTreeMap::new();
    let mut found = Vec::new();
    for (index, line) in table.lines().enumerate().filter(|(_, line)| is_row(line)) {
        match row(line) {
            Some((name, figures)) => drop(rows.insert(name, (index + 1, figures))),
            None => found.push(Finding::new(TABLE, index + 1, "not a name and five figures")),
        }
    }
    for one in crates {
        let name = &one.name;
        let Some((line, most)) = rows.remove(name.as_str()) else {
            found.push(Finding::new(TABLE, 0, format!("there is no row for {name}")));
            continue;
        };
        for ((figure, most), (_, counts)) in one.figures().into_iter().zip(most).zip(FIGURES) {
            if figure > most {
                let says = format!(
                    "{name} has {figure} {counts}, {most} are the most: `cargo xtask structure {name}` lists them"
                );
                found.push(Finding::new(TABLE, line, says));
            } else if figure < most {
                let says = format!(
                    "{name} has {figure} {counts}, not {most} any more: `cargo xtask tidy --bless` enters it"
                );
                found.push(Finding::new(TABLE, line, says));
            }
        }
    }
    found.extend(
        rows.into_iter()
            .map(|(name, (line, _))| Finding::new(TABLE, line, format!("there is no crate {name}"))),
    );
    found
}

/// Returns the table with what has become less, or nothing if nothing has. What has become more stays as it is.
pub(super) fn blessed(table: &str, crates: &[Structure]) -> Option<String> {
    let mut text = String::with_capacity(table.len());
    for line in table.lines() {
        let known = row(line).and_then(|(name, most)| {
            let one = crates.iter().find(|one| one.name == name)?;
            let mut least = one.figures();
            for (figure, most) in least.iter_mut().zip(most) {
                *figure = most.min(*figure);
            }
            (least != most).then(|| written(name, least))
        });
        text += &known.unwrap_or_else(|| line.to_owned());
        text.push('\n');
    }
    (text != table).then_some(text)
}

fn is_row(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

fn row(line: &str) -> Option<(&str, Figures)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|_| is_row(line))?;
    let figures: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((name, figures.try_into().ok()?))
}

fn written(name: &str, figures: Figures) -> String {
    let figures = figures.map(|figure| format!(" {figure:>8}"));
    format!("{name:12}{}", figures.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::structure::owners::Owners;

    fn pbft(open: usize) -> Structure {
        Structure {
            name: "pbft".to_owned(),
            files: 3,
            uses: Vec::new(),
            circles: vec![vec!["a.rs".to_owned(), "b.rs".to_owned()]],
            arrows: Vec::new(),
            unplaced: Vec::new(),
            owners: Owners { open: vec!["Replica.view".to_owned(); open], verbs: Vec::new() },
        }
    }

    const ROWS: &str =
        "# crate circle circles up open verbs\npbft                2        2        0        4        0\n";

    #[test]
    fn as_many_as_the_table_says_are_fine() {
        assert_eq!(check(ROWS, &[pbft(4)]), []);
        assert_eq!(blessed(ROWS, &[pbft(4)]), None);
    }

    #[test]
    fn one_more_is_an_error_that_blessing_does_not_enter() {
        let found = check(ROWS, &[pbft(5)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].says.starts_with("pbft has 5 open fields"), "{found:?}");
        assert_eq!(blessed(ROWS, &[pbft(5)]), None);
    }

    #[test]
    fn one_less_is_an_error_until_it_is_entered() {
        assert!(check(ROWS, &[pbft(3)])[0].says.contains("not 4 any more"));
        let entered = blessed(ROWS, &[pbft(3)]).unwrap_or_default();
        assert_eq!(entered, ROWS.replace("4        0", "3        0"));
        assert_eq!(check(&entered, &[pbft(3)]), []);
    }

    #[test]
    fn rows_and_crates_must_be_the_same() {
        assert_eq!(check("", &[pbft(4)]).len(), 1);
        assert_eq!(check(&format!("{ROWS}gone 1 2 3 4 5\n"), &[pbft(4)]).len(), 1);
        assert_eq!(check(&format!("{ROWS}gone 1 2\n"), &[pbft(4)]).len(), 1);
    }
}
