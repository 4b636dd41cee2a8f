//! A training step as data: who computes for how long, and which collectives of which groups of ranks come after what.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@model`] | a [`Workload`]: ranks, groups, programs, nodes |
//! | [`kinds`] | kinds of collectives, types of elements |
//! | [`ranks`] | lists of ranks as text |
//! | [`mod@error`] | what is wrong with an input |
//! | [`mod@file`] | workloads as TOML |
//! | [`flat`] | a program without calls, with all that its nodes wait for |
//! | [`mod@validate`] | what must hold |
//! | [`mod@summary`] | what is in a workload |
//! | [`import`] | traces and workloads of other tools |
//! | [`generate`] | workloads from published sizes of models |
//! | [`durations`] | times of a trace in place of computed ones |
//! | [`mod@report`] | what importers left out and assumed |
//! | [`network`] | networks of other tools |
//! | [`run`] | a workload run through with communication that takes no time |
//!
//! A driver takes a [`Checked`] workload. Each rank does the [`flat::Flat`] program of its own: a node begins when all of [`flat::Flat::after`] are done, the
//! node before it in its stream included, so that a driver needs to know nothing of streams. Collectives meet by group, instance of the group
//! and number; transfers by both ranks and the tag, the first with the first.
//!
//! ```
//! use fanin_workload::flat::Step;
//! use fanin_workload::{Workload, validate};
//!
//! let text = r#"
//! workload = 1
//! ranks = 4
//! groups = [{ name = "pairs", size = 2 }]
//! programs = [{ name = "all", ranks = "0-3", nodes = [
//!   { id = "multiply", compute = "2us" },
//!   { id = "sum", collective = "all-reduce", group = "pairs", bytes = "1MiB", element = "f32", after = ["multiply"] },
//! ] }]
//! "#;
//! let workload = Workload::from_toml("step.toml", text)?;
//! let checked = validate(&workload, "step.toml")?;
//! let flat = &checked.flats[0];
//! assert_eq!(flat.after(1), [0]);
//! let Step::Collective(sum, number) = flat.nodes[1].step else { panic!("a sum") };
//! let place = checked.places[sum.group as usize][3].expect("rank 3 is in a pair");
//! assert_eq!((number, place.instance, place.position), (0, 1, 1));
//! assert_eq!(workload.groups[sum.group as usize].members.of(place.instance), [2, 3]);
//! # Ok::<(), fanin_workload::WorkloadError>(())
//! ```
#![forbid(unsafe_code)]

pub mod durations;
pub mod error;
pub mod file;
pub mod flat;
pub mod generate;
pub mod import;
pub mod kinds;
pub mod model;
pub mod network;
pub mod ranks;
mod read;
pub mod report;
pub mod run;
pub mod summary;
pub mod validate;

pub use error::WorkloadError;
pub use kinds::{CollectiveKind, Element};
pub use model::{Action, Block, Collective, Group, Hosts, Members, Node, Peer, Program, Transfer, Workload};
pub use ranks::RANKS_MAX;
pub use report::Report;
pub use summary::Summary;
pub use validate::{Checked, validate};
