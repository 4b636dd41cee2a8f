//! What some ranks of a job with a workload did over time, for a picture.

use fanin_sim::programs::{ProgramResult, Span};
use serde::{Deserialize, Serialize};

use super::record::{way_name, way_of};
use crate::jobs::workload::lanes::PreparedProgram;

/// Ranks that are shown at most.
const RANKS_MAX: usize = 12;
/// What is closer together than this part of the time is one bar.
const PARTS: f64 = 1_500.0;

/// Some ranks over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// What bars are of: computing first, then what is communicated.
    pub what: Vec<String>,
    /// The ranks.
    pub ranks: Vec<RankTimeline>,
    /// When the last bar ends, in microseconds.
    pub end_us: f64,
}

/// A rank over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RankTimeline {
    /// Its number.
    pub rank: u32,
    /// What it did, by [`Timeline::what`].
    pub bars: Vec<Bar>,
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// Index in [`Timeline::what`].
    pub what: usize,
    /// From when.
    pub begun_us: f64,
    /// Until when.
    pub ended_us: f64,
}

/// The ranks that are shown: the first of each program, and others evenly, in their order.
fn shown(program: &PreparedProgram) -> Vec<u32> {
    let count = program.program_of.len();
    let mut ranks: Vec<u32> = Vec::new();
    for of in 0..program.source.workload.programs.len() as u32 {
        ranks.extend(program.program_of.iter().position(|program| *program == of).map(|rank| rank as u32));
    }
    ranks.truncate(RANKS_MAX);
    let step = count.div_ceil(RANKS_MAX).max(1);
    for rank in (0..count as u32).step_by(step) {
        if ranks.len() < RANKS_MAX && !ranks.contains(&rank) {
            ranks.push(rank);
        }
    }
    ranks.sort_unstable();
    ranks
}

/// What some ranks did.
pub fn timeline(program: &PreparedProgram, result: &ProgramResult) -> Timeline {
    let end_ps = result.ranks.iter().flatten().filter(|span| span.ended_ps != Span::NEVER).map(|span| span.ended_ps).max().unwrap_or(0);
    let end_us = end_ps as f64 / 1e6;
    let mut timeline = Timeline { what: vec!["computing".into()], ranks: Vec::new(), end_us };
    for rank in shown(program) {
        let mut bars: Vec<Bar> = Vec::new();
        for (step, span) in (0..).zip(&result.ranks[rank as usize]) {
            if span.ended_ps == Span::NEVER || span.ended_ps == span.begun_ps {
                continue;
            }
            let name = way_of(program, rank, step).map_or_else(|| timeline.what[0].clone(), |(way, _)| way_name(program, way));
            let what = timeline.what.iter().position(|other| *other == name).unwrap_or_else(|| {
                timeline.what.push(name);
                timeline.what.len() - 1
            });
            bars.push(Bar { what, begun_us: span.begun_ps as f64 / 1e6, ended_us: span.ended_ps as f64 / 1e6 });
        }
        timeline.ranks.push(RankTimeline { rank, bars: joined(bars, end_us / PARTS) });
    }
    timeline
}

/// Bars of one kind that are close together become one.
fn joined(mut bars: Vec<Bar>, near_us: f64) -> Vec<Bar> {
    bars.sort_by(|a, b| (a.what, a.begun_us).partial_cmp(&(b.what, b.begun_us)).unwrap_or(std::cmp::Ordering::Equal));
    let mut all: Vec<Bar> = Vec::new();
    for bar in bars {
        match all.last_mut() {
            Some(last) if last.what == bar.what && bar.begun_us - last.ended_us < near_us => {
                last.ended_us = last.ended_us.max(bar.ended_us)
            }
            _ => all.push(bar),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_kind_that_are_near_are_one() {
        let bar = |what, begun_us, ended_us| Bar { what, begun_us, ended_us };
        let bars = vec![bar(1, 0.0, 1.0), bar(0, 0.0, 2.0), bar(0, 2.5, 3.0), bar(0, 9.0, 10.0), bar(1, 0.5, 4.0)];
        assert_eq!(joined(bars, 1.0), [bar(0, 0.0, 3.0), bar(0, 9.0, 10.0), bar(1, 0.0, 4.0)]);
    }
}
