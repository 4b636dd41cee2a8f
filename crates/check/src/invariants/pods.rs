//! What must be true of jobs in pods: steps in their order, and one end for all.

use fanin_core::NodeId;
use fanin_sim::RunResult;
use fanin_sim::metrics::Ended;
use fanin_sim::programs::{ProgramFailure, ProgramResult, Span};

use crate::pods::PodsRecipe;
use crate::recipe::{Demand, Recipe};

/// Says what is wrong with what came of the recipe's jobs in pods.
pub fn violations(recipe: &Recipe, result: &RunResult, found: &mut Vec<String>) {
    for (number, (pods, ran)) in recipe.pods.iter().zip(&result.programs).enumerate() {
        let mut blame = |what: String| found.push(format!("pods {number}: {what}"));
        check_order(pods, ran, &mut blame);
        check_end(recipe, result, (pods, ran), &mut blame);
    }
}

/// Steps are under way in their order: none before what it waits for, and none at a host before another that its group has taken first.
fn check_order(pods: &PodsRecipe, ran: &ProgramResult, blame: &mut dyn FnMut(String)) {
    let steps = pods.vectors.steps();
    for (rank, spans) in ran.ranks.iter().enumerate() {
        for (place, (step, span)) in steps.iter().zip(spans).enumerate() {
            let name = || format!("rank {rank}, {} {}.{}", step.part.name(), step.operation, step.chunk);
            let (begun, ended) = (span.begun_ps != Span::NEVER, span.ended_ps != Span::NEVER);
            if ended && (!begun || span.ended_ps < span.begun_ps) {
                blame(format!("{} ended at {} ps, and began at {} ps", name(), span.ended_ps, span.begun_ps));
            }
            let before = step.after.map(|before| &spans[before as usize]);
            if let Some(before) = before
                && begun
                && (before.ended_ps == Span::NEVER || before.ended_ps > span.begun_ps)
            {
                blame(format!("{} began at {} ps, before what it waits for had ended", name(), span.begun_ps));
            }
            let turn = steps[..place].iter().zip(spans).filter(|(other, _)| other.part == step.part);
            if ended && turn.into_iter().any(|(_, other)| other.ended_ps > span.ended_ps) {
                blame(format!("{} ended before one that its group takes first", name()));
            }
        }
    }
}

/// All ranks are through, or a step has failed and ended the whole, or hosts that died have taken it along.
fn check_end(recipe: &Recipe, result: &RunResult, (pods, ran): (&PodsRecipe, &ProgramResult), blame: &mut dyn FnMut(String)) {
    let is_through = |spans: &Vec<Span>| spans.iter().all(|span| span.ended_ps != Span::NEVER);
    let through = ran.ranks.iter().filter(|spans| is_through(spans)).count();
    match (&ran.ended, &ran.failure) {
        (Some(_), Some(failure)) => blame(format!("ended, and failed: {failure:?}")),
        (Some(_), None) if through < ran.ranks.len() => blame(format!("ended where {through} of {} ranks are through", ran.ranks.len())),
        (None, None) if result.ended == Ended::JobsDone && ran.crashed.is_none() => {
            let living = pods.pods.iter().flatten().filter(|host| !died(recipe, result, **host)).count();
            if living == pods.start.len() || through < living {
                blame(format!("neither ended nor failed: {through} ranks are through, and {living} live"));
            }
        }
        (None, Some(failure)) => check_failure(recipe, result, (pods, ran), failure, blame),
        _ => {}
    }
}

fn died(recipe: &Recipe, result: &RunResult, host: NodeId) -> bool {
    recipe.deaths().any(|(dead, at)| dead == host && at <= result.end)
}

/// What a step's failure says. The group's job says the rest: [`crate::invariants`] looks at that.
fn check_failure(
    recipe: &Recipe,
    result: &RunResult,
    (pods, ran): (&PodsRecipe, &ProgramResult),
    failure: &ProgramFailure,
    blame: &mut dyn FnMut(String),
) {
    if recipe.demand == Demand::MustComplete {
        blame(format!("failed where it must not: {failure:?}"));
    }
    let ranks = pods.ranks_of(failure.lane);
    let part = pods.members()[failure.lane as usize].0;
    let place = pods.vectors.steps().into_iter().enumerate().filter(|(_, step)| step.part == part).nth(failure.operation as usize);
    let Some((place, _)) = place else { return blame(format!("a step that is not there has failed: {failure:?}")) };
    let Some(says) = ranks.get(failure.host as usize) else { return blame(format!("nobody says so: {failure:?}")) };
    let span = &ran.ranks[*says as usize][place];
    if span.begun_ps == Span::NEVER || span.ended_ps != Span::NEVER {
        blame(format!("rank {says} was not in the step that has failed: {failure:?}"));
    }
    // Nothing goes on where a part has failed.
    let at = result.jobs[pods.first + failure.lane as usize].workers[failure.host as usize].operations.last().and_then(|last| last.ended);
    let later = |span: &&Span| span.ended_ps != Span::NEVER && at.is_some_and(|at| span.ended_ps > at.as_ps());
    if let Some(span) = ran.ranks.iter().flatten().find(later) {
        blame(format!("a step ended at {} ps, after one had failed: {failure:?}", span.ended_ps));
    }
}

/// Whether a rank of a group waits for somebody in another group: then who waits for it names it, though it is not to blame.
pub fn waits_elsewhere(recipe: &Recipe, result: &RunResult, index: usize, rank: u32) -> bool {
    let Some((number, pods)) = recipe.pods.iter().enumerate().find(|(_, pods)| pods.jobs().contains(&index)) else { return false };
    let (lane, steps) = ((index - pods.first) as u32, pods.vectors.steps());
    let Some(of) = pods.ranks_of(lane).get(rank as usize).copied() else { return false };
    let Some(spans) = result.programs.get(number).and_then(|ran| ran.ranks.get(of as usize)) else { return false };
    steps
        .iter()
        .zip(spans)
        .any(|(step, span)| pods.place(of, step.part).0 != lane && span.begun_ps != Span::NEVER && span.ended_ps == Span::NEVER)
}
