//! Which switches to buy: predictions of all systems over all links, held against simulation.
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`] | a network and its jobs; the runs that follow from a system and a set of switches |
//! | [`draw`] | networks and jobs, drawn at random |
//! | [`check`] | predictions against simulation |
//! | [`fluid`] | jobs that share links and adders |
//! | [`predict`] | what a run of a plan takes, as predicted |
#![forbid(unsafe_code)]

pub mod check;
pub mod draw;
pub mod fluid;
pub mod predict;
pub mod setting;

pub use predict::{JobPrediction, Prediction, predict};
