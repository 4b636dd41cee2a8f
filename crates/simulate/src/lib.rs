//! `fanin sim` and `fanin examples`. They are a crate of their own, with a small program, since half of Fanin is all that they need: a fresh clone
//! has its first result before the other half is built.
//!
//! | module | what it holds |
//! |---|---|
//! | `sim` | `fanin sim`: from the command line to files and exit code |
//! | `examples` | `fanin examples`: what comes with the program |
//! | `executor` | runs that other processes and machines compute |
//! | `progress` | runs a plan and shows how far it is |
#![forbid(unsafe_code)]
#![allow(rustdoc::bare_urls, reason = "documentation of arguments is the program's help")]

#[macro_use(eprintln, print, println)]
extern crate fanin_terminal;

pub mod examples;
pub mod executor;
pub mod progress;
pub mod sim;
