//! What programs say on a terminal, to a file or into a pipe.
//!
//! | module | what it holds |
//! |---|---|
//! | `lines` | lines for people, which hold nobody up |
//! | `output` | results, remarks, and the end of a command; `print!`, `println!` and `eprintln!` in place of the standard library's |
//! | `log` | the log |
#![forbid(unsafe_code)]

pub mod lines;
pub mod log;
pub mod output;
