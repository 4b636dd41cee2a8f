//! Which switches to buy: predictions of all systems over all links, held against simulation.
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`] | a network and its jobs; the runs that follow from a system and a set of switches |
//! | [`value`] | what a system does with a set of switches |
//! | [`choose`] | which switches to buy, in which order, for which system |
//! | [`mod@prices`] | what switches cost |
//! | [`written`], [`page`] | networks as files; a page for people |
//! | [`draw`] | networks and jobs, drawn at random |
//! | [`check`] | predictions against simulation |
//! | [`fluid`] | jobs that share links and adders |
//! | [`mod@predict`] | what a run of a plan takes, as predicted |
#![forbid(unsafe_code)]

pub mod check;
pub mod choose;
pub mod draw;
pub mod fluid;
pub mod page;
pub mod predict;
pub mod prices;
pub mod setting;
pub mod value;
pub mod written;

pub use choose::{Advice, Question, advise};
pub use predict::{JobPrediction, Prediction, predict};
