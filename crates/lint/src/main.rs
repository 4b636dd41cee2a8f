//! Checks of the repository itself.
#![forbid(unsafe_code)]

fn main() {}
