//! A tree of C sources for the Andrew benchmark, made by a rule: as many files, and as long, as in `fs-andrew`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Directories, files, and how long files are, in bytes.
pub(super) const DIRS: usize = 10;
const FILES: usize = 70;
const BYTES_MIN: usize = 500;
const BYTES_MAX: usize = 5_500;
/// What a source includes.
const HEADERS: usize = 8;

/// Returns every file: its name and what is in it. Of three files one is a source, one a header and one a text.
pub(super) fn files() -> Vec<(String, String)> {
    (0..FILES).map(|number| (name(number), text(number))).collect()
}

/// Returns the names of the sources.
pub(super) fn sources() -> Vec<String> {
    (0..FILES).step_by(3).map(name).collect()
}

/// Writes the tree to a directory.
pub(super) fn write(dir: &Path) -> Result<()> {
    for number in 0..DIRS {
        fs::create_dir_all(dir.join(format!("dir-{number}")))?;
    }
    for (name, text) in files() {
        fs::write(dir.join(&name), text).with_context(|| name)?;
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("dir-{}/file-{number}.{}", number % DIRS, ["c", "h", "txt"][number % 3])
}

/// Lengths that are spread evenly between the two.
fn length(number: usize) -> usize {
    BYTES_MIN + number * 1_999 % (BYTES_MAX - BYTES_MIN)
}

fn text(number: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    let mut fill = |text: &mut String, form: &dyn Fn(usize) -> String| {
        while text.len() < length(number) || line == 0 {
            text.push_str(&form(line));
            line += 1;
        }
    };
    match number % 3 {
        0 => {
            let headers: Vec<usize> =
                (0..HEADERS).map(|n| (number + 1 + n * 3) % (FILES - 1) / 3 * 3 + 1).collect();
            for header in &headers {
                let _ = writeln!(text, "#include \"../{}\"", name(*header));
            }
            fill(&mut text, &|line| {
                let header = headers[line % HEADERS];
                format!(
                    "int source_{number}_{line}(int x)\n{{\n    int sum = {line};\n    for (int i = 0; i < x; i++)\n        \
                     sum += header_{header}_0(i) ^ {number};\n    return sum;\n}}\n"
                )
            });
            if number == 0 {
                main(&mut text);
            }
        }
        1 => {
            let _ = writeln!(text, "#ifndef HEADER_{number}\n#define HEADER_{number}");
            fill(&mut text, &|line| {
                format!(
                    "static inline int header_{number}_{line}(int x) {{ return x * {number} + {line}; }}\n"
                )
            });
            text.push_str("#endif\n");
        }
        _ => fill(&mut text, &|line| format!("{number}.{line}: a line of text that nobody compiles\n")),
    }
    text
}

/// A program that uses every source.
fn main(text: &mut String) {
    let all = || (0..FILES).step_by(3);
    all().for_each(|source| {
        let _ = writeln!(text, "int source_{source}_0(int x);");
    });
    let sum: Vec<String> = all().map(|source| format!("source_{source}_0(3)")).collect();
    let _ = writeln!(text, "int main(void)\n{{\n    return ({}) == 0;\n}}", sum.join(" + "));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::process::Command;

    use super::*;

    #[test]
    fn it_is_as_large_as_that_of_the_experiment() {
        let files = files();
        assert_eq!((files.len(), sources().len()), (70, 24));
        assert!(files.iter().all(|(_, text)| text.len() >= BYTES_MIN && text.len() < BYTES_MAX + 3_000));
        let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
        assert!((180_000..260_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn every_source_includes_headers_that_are_there() {
        let files = files();
        for (name, text) in files.iter().filter(|(name, _)| sources().contains(name)) {
            let includes: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("#include \"../")?.strip_suffix('"'))
                .collect();
            assert_eq!(includes.len(), HEADERS, "{name}");
            for include in includes {
                assert!(files.iter().any(|(other, _)| other == include), "{name}: {include}");
            }
        }
    }

    /// Asks the compiler that Rust links with.
    #[test]
    fn it_compiles_and_runs() {
        let dir = std::env::temp_dir().join(format!("quorate-tree-{}", std::process::id()));
        write(&dir).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(&dir).args(["-O0", "-Wall", "-Werror", "-o", "program"]).args(sources());
        let out = cc.output().unwrap();
        let ran = Command::new(dir.join("program")).status().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(out.status.success() && ran.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
