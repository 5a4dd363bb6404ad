//! Parallel execution: the engines by themselves, and whole runs compared with sequential execution.

mod cases;
mod drawn;
mod engines;
mod flaky;
mod pairs;
mod schedules;
mod stored;
mod threads;
