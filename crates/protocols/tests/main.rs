//! The systems as state machines, held against sums that are computed without them. One program: its parts share most of their code, which
//! takes longer to compile than to run.

mod aggregation;
mod aggregation_wide;
mod atp_fixed_point;
mod canary;
mod canary_adaptive;
mod canary_bench;
mod canary_duties;
mod canary_examples;
mod canary_fabric;
mod canary_hostile;
mod canary_losses;
#[cfg(feature = "planted-bugs")]
mod canary_planted;
mod canary_recovery;
mod canary_shared;
mod canary_storm;
mod canary_windows;
mod common;
mod connection;
mod doubling;
mod exchange;
mod flare;
mod flare_sparse;
mod hostile;
mod netreduce;
mod netreduce_literal;
mod netreduce_losses;
mod netreduce_plan;
mod panama;
#[cfg(feature = "planted-bugs")]
mod planted;
mod ps;
mod rina;
mod ring;
mod switchml;
#[cfg(feature = "planted-bugs")]
mod switchml_planted;
mod tree;
