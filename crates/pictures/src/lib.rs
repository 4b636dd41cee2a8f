//! Results of plans for people.
//!
//! | module | what it holds |
//! |---|---|
//! | [`grid`] | numbers at places along axes, for claims and pictures |
//! | [`table`] | the summary: a row a point |
//! | [`rows`] | what a model gives: a row for each combination of its parameters |
//! | [`plot`] | pictures, as SVG |
//! | [`paper`] | the same as figures for papers, as SVG and PDF |
//! | [`report`] | all of that as one page |
//! | [`folder`] | the files of a plan's results |
#![forbid(unsafe_code)]

pub mod folder;
pub mod grid;
pub mod paper;
pub mod plot;
pub mod report;
pub mod rows;
pub mod table;
