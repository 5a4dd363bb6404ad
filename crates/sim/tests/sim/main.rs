//! The simulator's tests: one program, so that the long ones share the cores.

mod busy;
mod command;
mod expected;
mod files;
mod healed;
mod occurs;
mod recording;
mod scenarios;
mod sizes;
mod traces;
mod workers;
mod world;
