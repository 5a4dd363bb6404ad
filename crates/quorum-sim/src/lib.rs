//! The simulator of the registers.
