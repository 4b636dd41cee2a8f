//! Durations of a trace in place of computed ones.
//!
//! A computation gets the mean time of those in the trace that have its name: nodes of an imported workload, or spans of a profile that the
//! training program named itself (`torch.profiler.record_function`). All others get what the trace says between the same collectives: those of a
//! program are looked up in the trace in their order, by kind, length and type; between two of them the trace's time of computing is divided in
//! proportion to the computed times. The time before the first collective of an iteration is that from the last one of the iteration before on,
//! updates of parameters included. A node of a block is done several times, and gets the mean. So an iteration computes as long as one of the
//! trace does, where all of its collectives are found.

use std::collections::BTreeMap;

use fanin_core::Duration;

use crate::error::WorkloadError;
use crate::flat::{Flat, Step, Written, written};
use crate::import::{Format, Input, Options, import, kineto};
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Workload};
use crate::report::Report;
use crate::validate::{Checked, validate};

/// What a trace has said of a model's computations.
#[derive(Clone, Debug)]
pub struct Durations {
    /// Computations, as they are written, with the time of those of the same name.
    pub by_name: u64,
    /// With their part of the time between collectives.
    pub by_collectives: u64,
    /// That keep their computed time.
    pub computed: u64,
    /// Iterations of the trace with all collectives of a program that the trace has; the most of any program.
    pub iterations: u32,
    /// What of trace and model was not matched, and what was assumed; what the import of the trace had to say comes first.
    pub report: Report,
}

/// Times that are known of a name: their sum in picoseconds, and how many.
type Named = BTreeMap<String, (u128, u64)>;

/// A collective by what tells it from others: kind, bytes, type.
type Key = (CollectiveKind, u64, Element);

/// Where a computation of a program is written: the program, where it is in none of the blocks.
type Place = (Option<usize>, Option<u32>, u32);

/// Takes the durations of computations from a trace: files of a format that can be imported, or one workload of Fanin's.
///
/// # Errors
/// The files are damaged, or nothing in them is found in the model: the error names what was looked for.
pub fn apply(workload: &mut Workload, inputs: &[Input]) -> Result<Durations, WorkloadError> {
    let file = inputs.first().map_or_else(String::new, |input| input.name.clone());
    let (trace, mut named, report) = read(inputs, &file)?;
    let checked = validate(&trace, &file)?;
    names_of(&trace, &checked, &mut named);
    let own = validate(workload, "fanin workload")?;
    let mut matching = Matching {
        workload,
        checked: &own,
        trace: &trace,
        of_trace: &checked,
        times: BTreeMap::new(),
        iterations: 0,
        missed: None,
        report,
    };
    for program in 0..matching.workload.programs.len() {
        matching.program(program);
    }
    let Matching { times, iterations, missed, mut report, .. } = matching;
    let (mut by_name, mut by_collectives, mut computed) = (0, 0, 0);
    let mut found: BTreeMap<Place, Duration> = BTreeMap::new();
    let mut used = BTreeMap::new();
    for (place, id) in computations(workload) {
        if let Some((name, (sum, count))) = names_for(&id).into_iter().find_map(|name| named.get_key_value(&name)) {
            found.insert(place, mean(*sum, *count));
            used.insert(name.clone(), ());
            by_name += 1;
        } else if let Some((sum, count)) = times.get(&place) {
            found.insert(place, mean(*sum, *count));
            by_collectives += 1;
        } else {
            computed += 1;
            report.leave("computations of the model that nothing in the trace is found for, which keep their computed time", || id.clone());
        }
    }
    if found.is_empty() {
        let what = missed.unwrap_or_else(|| "it has no collectives".into());
        let expected = format!("nothing is found in the model: expected computations of the same name, or the model's collectives; {what}");
        return Err(WorkloadError::new(&file, expected));
    }
    for (name, (_, count)) in named.iter().filter(|(name, _)| !used.contains_key(*name)) {
        report.leave_many("named times of the trace that are no computation of the model", *count, || name.clone());
    }
    set(workload, &found);
    let all = by_name + by_collectives + computed;
    workload.source += &format!("; {} of {all} computations as measured in {file}", by_name + by_collectives);
    Ok(Durations { by_name, by_collectives, computed, iterations, report })
}

fn mean(sum: u128, count: u64) -> Duration {
    Duration::from_ps(u64::try_from(sum / u128::from(count.max(1))).unwrap_or(u64::MAX / 4))
}

/// The trace as a workload, what a profile's own spans are called, and what is to be said about it.
fn read(inputs: &[Input], file: &str) -> Result<(Workload, Named, Report), WorkloadError> {
    let mut named = Named::new();
    let Some(first) = inputs.first() else { return Err(WorkloadError::new(file, "expected a file")) };
    let Some(format) = inputs.iter().find_map(Format::of) else {
        let trace = Workload::from_toml(file, first.text()?)?;
        return match inputs.get(1) {
            Some(second) => Err(WorkloadError::new(&second.name, "expected one workload")),
            None => Ok((trace, named, Report::new("a workload"))),
        };
    };
    let found = import(format, inputs, &Options::default())?;
    if format == Format::Kineto {
        for input in inputs {
            kineto::named_spans(input, &mut named)?;
        }
    }
    Ok((found.workload, named, found.report))
}

/// Adds the times of all computations of a trace by their names.
fn names_of(trace: &Workload, checked: &Checked, named: &mut Named) {
    let program_of = trace.programs.iter().zip(&checked.flats);
    for (program, flat) in program_of {
        for node in &flat.nodes {
            let Step::Compute(time) = node.step else { continue };
            let id = &written(trace, program, node.written).id;
            // What an import of a profile calls the parts between its collectives is no name.
            let is_number = id.strip_prefix("compute ").is_some_and(|rest| rest.bytes().all(|one| one.is_ascii_digit()));
            if !is_number && time > Duration::ZERO {
                let (sum, count) = named.entry(full_name(trace, node.written.block, id)).or_default();
                (*sum, *count) = (*sum + u128::from(time.as_ps()), *count + 1);
            }
        }
    }
}

/// A node's name, behind that of its block.
fn full_name(workload: &Workload, block: Option<u32>, id: &str) -> String {
    block.map_or_else(|| id.to_string(), |block| format!("{} {id}", workload.blocks[block as usize].name))
}

/// Under which names a computation may be known: its own, and without the number of its pass.
fn names_for(id: &str) -> Vec<String> {
    let without = id.rsplit_once(' ').filter(|(_, last)| last.bytes().all(|one| one.is_ascii_digit() || one == b'.'));
    std::iter::once(id.to_string()).chain(without.map(|(name, _)| name.to_string())).collect()
}

/// All computations of a workload that take time, as they are written, by place.
fn computations(workload: &Workload) -> Vec<(Place, String)> {
    let takes_time = |action: &Action| matches!(action, Action::Compute(time) if *time > Duration::ZERO);
    let mut all = Vec::new();
    for (number, block) in (0..).zip(&workload.blocks) {
        let nodes = (0..).zip(&block.nodes).filter(|(_, node)| takes_time(&node.action));
        all.extend(nodes.map(|(index, node)| ((None, Some(number), index), full_name(workload, Some(number), &node.id))));
    }
    for (number, program) in workload.programs.iter().enumerate() {
        let nodes = (0..).zip(&program.nodes).filter(|(_, node)| takes_time(&node.action));
        all.extend(nodes.map(|(index, node)| ((Some(number), None, index), node.id.to_string())));
    }
    all
}

fn set(workload: &mut Workload, found: &BTreeMap<Place, Duration>) {
    for ((program, block, index), time) in found {
        let nodes = match (program, block) {
            (_, Some(block)) => &mut workload.blocks[*block as usize].nodes,
            (Some(program), None) => &mut workload.programs[*program].nodes,
            (None, None) => continue,
        };
        nodes[*index as usize].action = Action::Compute(*time);
    }
}

/// A program as far as this goes: its computations in their order, and its collectives with how many computations are before them.
struct Line {
    /// Where each computation is written, and its time.
    computing: Vec<(Written, Duration)>,
    /// Until each of them, in picoseconds, and at the end.
    until: Vec<u128>,
    /// What tells each collective from others, the computations before it, and where it is written.
    collectives: Vec<(Key, usize, Written)>,
}

impl Line {
    fn of(flat: &Flat) -> Line {
        let mut computing = Vec::new();
        let mut own = vec![None; flat.nodes.len()];
        for (index, node) in flat.nodes.iter().enumerate() {
            if let Step::Compute(time) = node.step {
                own[index] = Some(computing.len());
                computing.push((node.written, time));
            }
        }
        let mut until = vec![0u128];
        computing.iter().for_each(|(_, time)| until.push(until.last().unwrap_or(&0) + u128::from(time.as_ps())));
        // By node: how many computations come before what waits for it.
        let mut before = vec![0usize; flat.nodes.len()];
        for node in flat.order().unwrap_or_default() {
            let node = node as usize;
            let waited = flat.after(node).iter().map(|one| before[*one as usize]).max().unwrap_or(0);
            before[node] = own[node].map_or(waited, |place| waited.max(place + 1));
        }
        let mut collectives = Vec::new();
        let mut last = 0;
        for (index, node) in flat.nodes.iter().enumerate() {
            if let Step::Collective(one, _) = &node.step {
                // What is launched later has no less before it.
                last = last.max(before[index]);
                collectives.push(((one.kind, one.bytes, one.element), last, node.written));
            }
        }
        Line { computing, until, collectives }
    }

    fn total(&self) -> u128 {
        self.until.last().copied().unwrap_or(0)
    }
}

fn words((kind, bytes, element): Key) -> String {
    if kind == CollectiveKind::Barrier { kind.to_string() } else { format!("{kind} of {bytes} bytes of {element}") }
}

struct Matching<'a> {
    workload: &'a Workload,
    checked: &'a Checked,
    trace: &'a Workload,
    of_trace: &'a Checked,
    /// By place: the sum of the times that were found, and how many.
    times: BTreeMap<Place, (u128, u64)>,
    iterations: u32,
    /// Why nothing was found.
    missed: Option<String>,
    report: Report,
}

impl Matching<'_> {
    /// The program of the trace that does what one of the model does.
    fn counterpart(&self, program: usize) -> Option<usize> {
        let rank = *self.workload.programs[program].ranks.first()?;
        let of_rank = self.trace.programs.iter().position(|one| one.ranks.contains(&rank));
        of_rank.or_else(|| (self.trace.programs.len() == 1).then_some(0))
    }

    fn program(&mut self, program: usize) {
        let name = self.workload.programs[program].name.clone();
        let Some(found) = self.counterpart(program) else {
            let what = "programs of the model of whose ranks the trace has none";
            return self.report.leave(what, || name.to_string());
        };
        let (own, seen) = (Line::of(&self.checked.flats[program]), Line::of(&self.of_trace.flats[found]));
        let wanted = self.wanted(program, &own, &seen);
        let Some((marks, total)) = self.find(&wanted, &seen) else { return };
        let count = wanted.len();
        self.iterations = self.iterations.max(marks.len() as u32);
        let ends: Vec<usize> = wanted.iter().map(|(_, end, _)| *end).collect();
        let iterations = marks.len() as u128;
        let inner = |part: usize| marks.iter().map(|marks| marks[part].saturating_sub(marks[part - 1])).sum::<u128>();
        let all_inner: u128 = (1..count).map(inner).sum();
        // Before the first collective, and behind the last: one part, as an iteration follows another.
        let mut parts: Vec<u128> = vec![total.saturating_sub(all_inner) / iterations];
        parts.extend((1..count).map(|part| inner(part) / iterations));
        let part_of = |place: usize| match ends.partition_point(|end| *end <= place) {
            part if part == count => 0,
            part => part,
        };
        let mut sums = vec![0u128; count];
        own.computing.iter().enumerate().for_each(|(place, (_, time))| sums[part_of(place)] += u128::from(time.as_ps()));
        for (place, (at, time)) in own.computing.iter().enumerate().filter(|(_, (_, time))| *time > Duration::ZERO) {
            let part = part_of(place);
            let one = u128::from(time.as_ps()) * parts[part] / sums[part];
            let (sum, count) = self.times.entry((at.block.is_none().then_some(program), at.block, at.index)).or_default();
            (*sum, *count) = (*sum + one, *count + 1);
        }
        for (part, (key, _, at)) in wanted.iter().enumerate().filter(|(part, _)| sums[*part] == 0 && parts[*part] > 0) {
            let id = &written(self.workload, &self.workload.programs[program], *at).id;
            let what =
                format!("{} of computing in the trace before a collective before which the model computes nothing", mean(parts[part], 1));
            self.report.leave(what, || format!("{id}, {} in program {name}", words(*key)));
        }
    }

    /// The collectives of the model that the trace has at all; the others of both are counted.
    fn wanted(&mut self, program: usize, own: &Line, seen: &Line) -> Vec<(Key, usize, Written)> {
        let has = |line: &Line, key: Key| line.collectives.iter().any(|(other, ..)| *other == key);
        for (key, ..) in seen.collectives.iter().filter(|(key, ..)| !has(own, *key)) {
            self.report.leave("collectives of the trace that the model does not have", || words(*key));
        }
        let (wanted, missing): (Vec<_>, Vec<_>) = own.collectives.iter().copied().partition(|(key, ..)| has(seen, *key));
        for (key, _, at) in &missing {
            let id = &written(self.workload, &self.workload.programs[program], *at).id;
            self.report.leave("collectives of the model that the trace does not have", || format!("{id}, {}", words(*key)));
        }
        if wanted.is_empty() {
            self.missed = own.collectives.first().map(|(key, ..)| format!("the model's first one is {}", words(*key)));
        }
        wanted
    }

    /// For each iteration of the trace: the time of computing until each of the collectives. And all of the time that they divide.
    fn find(&mut self, wanted: &[(Key, usize, Written)], seen: &Line) -> Option<(Vec<Vec<u128>>, u128)> {
        let (first, _, _) = wanted.first()?;
        let (mut marks, mut open) = (Vec::new(), Vec::new());
        for (key, place, _) in &seen.collectives {
            if *key == wanted[open.len()].0 {
                open.push(seen.until[*place]);
            } else if wanted.iter().any(|(other, ..)| other == key) {
                self.report.leave("collectives of the trace that come in another order than in the model", || words(*key));
            }
            if open.len() == wanted.len() {
                marks.push(std::mem::take(&mut open));
            }
        }
        if marks.is_empty() {
            let next = wanted.get(open.len()).map_or_else(String::new, |(key, ..)| words(*key));
            self.missed =
                Some(format!("no iteration of the trace has them all in their order, from {} on: {next} is missing", words(*first)));
            return None;
        }
        let total = match open.first() {
            None => seen.total(),
            Some(next) => {
                self.report.leave_many("collectives of the last iteration of the trace, which is not complete", open.len() as u64, || {
                    words(*first)
                });
                next.saturating_sub(marks[0][0])
            }
        };
        Some((marks, total))
    }
}
