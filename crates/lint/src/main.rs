//! Checks of the repository itself, for `make lint`:
//!
//! | module | rule |
//! |---|---|
//! | [`layers`] | which crate may import which, what pure crates may depend on, which Cargo features may exist |
//! | [`isolation`] | no system imports another one |
//! | [`circles`] | files of a crate import each other in no circle |
//! | [`purity`] | no `unsafe`, clocks, threads, sockets, files or hash maps where they do not belong |
//! | [`text`] | lengths of files, words that must not appear |
//! | [`parts`] | every file of tests that are one program is in it |
//! | [`links`] | links between documents lead somewhere |
//! | [`traceability`] | every clause and handler of a system has an item that implements it and a test that shows it |
//!
//! Each rule is a function from data to violations, and each has a test in which it fails.
#![forbid(unsafe_code)]

mod circles;
mod isolation;
mod layers;
mod links;
mod parts;
mod purity;
mod repository;
mod source;
mod text;
mod traceability;
mod violation;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::repository::Repository;
use crate::traceability::Matrix;
use crate::violation::Violation;

const USAGE: &str = "usage: fanin-lint check | fanin-lint traceability --write";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["check"] => check(),
        ["traceability", "--write"] => write_traceability(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => {
            for violation in &violations {
                eprintln!("{violation}");
            }
            eprintln!("{} violations", violations.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Applies every rule to the repository that the current folder is in.
fn check() -> Result<Vec<Violation>> {
    let repository = Repository::load()?;
    let mut violations = layers::check(&repository.packages);
    violations.extend(isolation::check(&repository));
    violations.extend(circles::check(&repository));
    violations.extend(purity::check(&repository));
    violations.extend(text::check(&repository));
    violations.extend(parts::check(&repository));
    violations.extend(links::check(&repository));
    let matrix = Matrix::load(&repository)?;
    violations.extend(traceability::check(&matrix, &repository));
    Ok(violations)
}

/// Renders the matrix; its rows are not checked here.
fn write_traceability() -> Result<Vec<Violation>> {
    let repository = Repository::load()?;
    let matrix = Matrix::load(&repository)?;
    let path = repository.root.join(traceability::RENDERED);
    std::fs::write(&path, matrix.render()).with_context(|| format!("writing {}", path.display()))?;
    Ok(Vec::new())
}
