//! Papers' figures: run, and held against what the papers say.
//!
//! ```no_run
//! use fanin_repro::catalog::Catalog;
//! use fanin_repro::figure::Done;
//! use fanin_repro::tasks::{How, tasks};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let how = How { quick: true, sets: &[], causes: false };
//! for task in tasks(&how, &Catalog::Embedded, "canary", &["fig08".to_string()])? {
//!     let done = Done::run(task, &how, &mut |plan| fanin_plan::run::run(plan, 2, || true))?;
//!     assert!(done.problems().is_empty());
//!     for judged in &done.judged {
//!         println!("{}: {:?}", judged.claim.id, judged.outcome.verdict);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalog`] | where experiments are: plan, claims and README of each figure |
//! | [`claims`], [`cause`], [`statistic`], [`verdict`] | the schema of claims, and what becomes of them |
//! | [`tasks`] | what is to be run: plans, and the changed plans of causes |
//! | [`figure`] | a figure that has been run |
//! | [`interval`] | what a number of several seeds, of one, or of a plan that draws nothing is worth |
//! | [`evaluate`] | from results to verdicts |
//! | [`causes`] | from changed plans to causes that are shown or refuted |
//! | [`coverage`] | `figures.toml`: everything that a paper shows, and the claims that cover it |
//! | [`output`], [`records`] | table and JSON of verdicts |
//! | [`page`], [`folder`] | the page of a paper, and the files of its results |
//! | [`recorded`], [`recording`], [`tables`] | what full runs gave, as a file of each figure and as the table of its README |
#![forbid(unsafe_code)]

pub mod catalog;
pub mod cause;
pub mod causes;
pub mod claims;
pub mod coverage;
pub mod evaluate;
pub mod figure;
pub mod folder;
pub mod interval;
pub mod output;
pub mod page;
pub mod recorded;
pub mod recording;
pub mod records;
pub mod statistic;
pub mod tables;
pub mod tasks;
pub mod verdict;
