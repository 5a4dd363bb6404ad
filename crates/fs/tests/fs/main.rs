//! The file system's tests: one program, so that what they share is compiled once.

mod ahead;
mod fsck;
mod full;
mod hostile;
mod model;
mod pairs;
mod parallel;
mod points;
mod points_service;
mod relay;
mod settings;
mod size;
mod support;
mod wire;
