//! Which switches to buy: predictions of all systems over all links, held against simulation.
//!
//! | module | what it holds |
//! |---|---|
//! | [`fluid`] | jobs that share links and adders |
//! | [`predict`] | what a run of a plan takes, as predicted |
#![forbid(unsafe_code)]

pub mod fluid;
pub mod predict;

pub use predict::{JobPrediction, Prediction, predict};
