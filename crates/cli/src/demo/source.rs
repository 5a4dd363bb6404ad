//! The source tree of the demo: a C program with a function in each file, whose output is known.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The main file, and how many of the functions it calls: with many files, calling all would take long.
pub(super) const MAIN: &str = "main.c";
const CALLED: u32 = 100;
/// Maximum number of steps of a function: some files are stored in their inode, some in many pages.
const STEPS: u32 = 700;
/// The compiler, with flags that turn off warnings and optimisation.
const COMPILER: &str = "cc";
const FLAGS: &[&str] = &["-w", "-O0"];

/// A step of a function: `x = x * factor + term`.
fn steps(file: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut state = u64::from(file).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 32).unwrap_or(0)
    };
    (0..file.wrapping_mul(7919) % STEPS).map(move |_| (next() | 1, next()))
}

/// The content of a file: a different function for each.
pub(super) fn text(file: u32) -> String {
    let mut text = format!("unsigned f{file}(unsigned x) {{\n");
    for (factor, term) in steps(file) {
        let _ = writeln!(text, "  x = x * {factor}u + {term}u;");
    }
    text + "  return x;\n}\n"
}

/// The content of the main file, in a tree of `count` other files.
pub(super) fn main(count: u32) -> String {
    let mut text = "int printf(const char *, ...);\n".to_owned();
    for file in called(count) {
        let _ = writeln!(text, "unsigned f{file}(unsigned);");
    }
    text += "int main(void) {\n  unsigned x = 1;\n";
    for file in called(count) {
        let _ = writeln!(text, "  x = f{file}(x);");
    }
    text + "  printf(\"%u\\n\", x);\n  return 0;\n}\n"
}

/// Returns the files whose functions the program calls.
fn called(count: u32) -> std::ops::Range<u32> {
    0..count.min(CALLED)
}

/// The expected output of the program.
fn answer(count: u32) -> u32 {
    let all = called(count).flat_map(steps);
    all.fold(1_u32, |x, (factor, term)| x.wrapping_mul(factor).wrapping_add(term))
}

/// Returns whether this machine has a compiler that produces a program.
pub(super) fn can_be_compiled(scratch: &Path) -> bool {
    let mut command = Command::new(COMPILER);
    command.args(["-x", "c", "-", "-o"]).arg(scratch.join("probe"));
    let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut compiler) = started else { return false };
    let asked = compiler.stdin.take().map(|mut stdin| stdin.write_all(b"int main(void) { return 0; }\n"));
    compiler.wait().is_ok_and(|status| status.success()) && matches!(asked, Some(Ok(())))
}

/// Compiles the tree in `tree` to the file `program`, runs it, and compares its output.
pub(super) fn compile(
    tree: &Path,
    program: &Path,
    path: impl Fn(u32) -> String,
    count: u32,
) -> Result<(), String> {
    let mut command = Command::new(COMPILER);
    command.current_dir(tree).args(FLAGS).arg("-o").arg(program).arg(MAIN).args(called(count).map(path));
    run(&mut command)?;
    let said = run(&mut Command::new(program))?;
    let answer = answer(count).to_string();
    if said.trim() == answer { Ok(()) } else { Err(format!("the program printed {said}, not {answer}")) }
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("{name}: {}, {}", ended.status, said.lines().next().unwrap_or_default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn files_differ() {
        assert!(text(1) != text(2) && text(1) == text(1) && text(0).lines().count() == 3);
    }

    /// The compiled program prints the expected number, and a different one if a file was changed.
    #[test]
    fn the_program_says_what_is_known() {
        let dir = std::env::temp_dir().join(format!("quorate-source-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (count, name) = (5, |file: u32| format!("{file}.c"));
        assert!(can_be_compiled(&dir), "the tests need a C compiler, as Rust does");
        (0..count).for_each(|file| std::fs::write(dir.join(name(file)), text(file)).unwrap());
        std::fs::write(dir.join(MAIN), main(count)).unwrap();
        compile(&dir, &dir.join("program"), name, count).unwrap();
        std::fs::write(dir.join(name(3)), text(3).replacen("x * ", "x + ", 1)).unwrap();
        let wrong = compile(&dir, &dir.join("program"), name, count).unwrap_err();
        assert!(wrong.contains("the program printed"), "{wrong}");
        std::fs::write(dir.join(name(3)), "no C").unwrap();
        let wrong = compile(&dir, &dir.join("program"), name, count).unwrap_err();
        assert!(wrong.starts_with("cc: "), "{wrong}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
