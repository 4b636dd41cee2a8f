//! What a command says. Results go to standard output, and where they cannot be written that is an error of the command and no panic; all else
//! goes to standard error, which may be full, closed or slow without holding anything up or ending it.
//!
//! The macros take the place of the standard library's, which panic, in all modules of the program.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use crate::lines::Lines;

/// How long a program waits at its end for a slow reader of its last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a result could not be written.
static FAILED: OnceLock<String> = OnceLock::new();

/// Writes a part of a result to standard output: [`result`](crate::output::result).
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::output::result(format_args!($($argument)*)) };
}

/// Writes a line of a result to standard output: [`result`](crate::output::result).
#[macro_export]
macro_rules! println {
    () => { $crate::output::result(format_args!("\n")) };
    ($($argument:tt)*) => { $crate::output::result(format_args!("{}\n", format_args!($($argument)*))) };
}

/// Writes a line for people to standard error: [`remark`](crate::output::remark).
#[macro_export]
macro_rules! eprintln {
    () => { $crate::output::remark(format_args!("")) };
    ($($argument:tt)*) => { $crate::output::remark(format_args!($($argument)*)) };
}

/// Writes a part of a result.
pub fn result(text: fmt::Arguments<'_>) {
    note(io::stdout().lock().write_fmt(text));
}

/// Writes a line for people.
pub fn remark(text: fmt::Arguments<'_>) {
    Lines::stderr().say(format!("{text}\n"));
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        // The first reason stays.
        let _ = FAILED.set(error.to_string());
    }
}

/// Ends a command: writes what is left, and says where a result could not be written.
pub fn finish(code: ExitCode) -> ExitCode {
    note(io::stdout().lock().flush());
    let failed = FAILED.get();
    if let Some(error) = failed {
        remark(format_args!("error: standard output: {error}"));
    }
    Lines::stderr().flush(LAST_WORDS);
    if failed.is_some() { ExitCode::from(1) } else { code }
}

/// Ends the program at once with this exit code, and what was said last.
pub fn leave(code: i32) -> ! {
    Lines::stderr().flush(LAST_WORDS);
    std::process::exit(code)
}
