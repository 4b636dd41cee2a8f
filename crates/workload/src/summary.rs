//! What is in a workload, for a table that a person checks at a glance.

use std::collections::{BTreeMap, BTreeSet};

use fanin_core::Duration;

use crate::error::printable;
use crate::flat::{Flat, Step, written};
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Members, Workload};
use crate::validate::Checked;

/// Bytes of a group's name at most.
const NAME_MAX: usize = 100;

/// What is in a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Ranks, and the hosts that they are on.
    pub ranks: u32,
    /// Hosts.
    pub hosts: u32,
    /// Iterations that the programs hold.
    pub iterations: u32,
    /// Different programs.
    pub programs: u32,
    /// Nodes of all ranks together, with blocks counted as often as they are done.
    pub nodes: u64,
    /// By kind of groups.
    pub groups: Vec<GroupRow>,
    /// By kind of collective, kind of groups and type.
    pub collectives: Vec<CollectiveRow>,
    /// Sends; `None` where there are none.
    pub sends: Option<SendRow>,
    /// Time of computations of a rank: the least and the most.
    pub compute: (Duration, Duration),
    /// Time that communication took where it was measured: the most of a rank; zero where nothing was measured.
    pub measured: Duration,
    /// When the last rank is done if communication takes no time; `None` where it is too large to be run through.
    pub span: Option<Duration>,
}

/// Groups of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRow {
    /// The name.
    pub name: String,
    /// How many there are.
    pub instances: u32,
    /// Members of the smallest and of the largest.
    pub members: (u32, u32),
}

/// Collectives of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveRow {
    /// The kind.
    pub kind: CollectiveKind,
    /// The kind of groups.
    pub group: String,
    /// The type.
    pub element: Element,
    /// How many the rank with most takes part in.
    pub of_rank: u64,
    /// How many there are in all groups together.
    pub in_all: u64,
    /// Different lengths.
    pub lengths: u64,
    /// The smallest and the largest, in bytes.
    pub bytes: (u64, u64),
    /// Bytes of the rank with most, of all iterations together.
    pub bytes_of_rank: u64,
}

impl CollectiveRow {
    /// Elements of the rank with most, of one iteration.
    pub fn elements_an_iteration(&self, iterations: u32) -> u64 {
        self.bytes_of_rank / self.element.bytes() / u64::from(iterations.max(1))
    }
}

/// Sends of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendRow {
    /// How many of the rank with most.
    pub of_rank: u64,
    /// How many of all.
    pub in_all: u64,
    /// The smallest and the largest, in bytes.
    pub bytes: (u64, u64),
    /// Bytes of the rank with most.
    pub bytes_of_rank: u64,
}

type Key = (CollectiveKind, u32, Element);

#[derive(Default)]
struct OfProgram {
    compute_ps: u64,
    measured_ps: u64,
    collectives: BTreeMap<Key, (u64, u64)>,
    sends: (u64, u64),
}

impl Summary {
    /// What is in a workload that holds.
    pub fn new(workload: &Workload, checked: &Checked) -> Summary {
        let mut rows: BTreeMap<Key, CollectiveRow> = BTreeMap::new();
        let mut lengths: BTreeMap<Key, BTreeSet<u64>> = BTreeMap::new();
        let mut sends = SendRow::default();
        let mut of: Vec<OfProgram> = Vec::new();
        for (flat, program) in checked.flats.iter().zip(&workload.programs) {
            let one = of_program(workload, program, flat, &mut lengths, &mut sends);
            let ranks = program.ranks.len() as u64;
            for (key, (count, bytes)) in &one.collectives {
                let row = rows.entry(*key).or_insert_with(|| CollectiveRow {
                    kind: key.0,
                    group: printable(&workload.groups[key.1 as usize].name, NAME_MAX),
                    element: key.2,
                    of_rank: 0,
                    in_all: 0,
                    lengths: 0,
                    bytes: (0, 0),
                    bytes_of_rank: 0,
                });
                row.of_rank = row.of_rank.max(*count);
                row.bytes_of_rank = row.bytes_of_rank.max(*bytes);
            }
            sends.of_rank = sends.of_rank.max(one.sends.0);
            sends.bytes_of_rank = sends.bytes_of_rank.max(one.sends.1);
            sends.in_all = sends.in_all.saturating_add(one.sends.0.saturating_mul(ranks));
            of.push(one);
        }
        count_in_all(workload, checked, &of, &mut rows);
        for (key, row) in &mut rows {
            let all = &lengths[key];
            row.lengths = all.len() as u64;
            row.bytes = (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0));
        }
        let compute = || of.iter().map(|one| one.compute_ps);
        let time = |ps: Option<u64>| Duration::from_ps(ps.unwrap_or(0));
        Summary {
            ranks: workload.ranks,
            hosts: workload.hosts.count(workload.ranks),
            iterations: workload.iterations,
            programs: workload.programs.len() as u32,
            nodes: checked.flats.iter().zip(&workload.programs).map(|(flat, of)| flat.nodes.len() as u64 * of.ranks.len() as u64).sum(),
            groups: group_rows(workload),
            collectives: rows.into_values().collect(),
            sends: (sends.in_all > 0).then_some(sends),
            compute: (time(compute().min()), time(compute().max())),
            measured: time(of.iter().map(|one| one.measured_ps).max()),
            span: checked.run.as_ref().map(|run| time(run.finished_ps.iter().copied().max())),
        }
    }
}

fn of_program(
    workload: &Workload,
    program: &crate::model::Program,
    flat: &Flat,
    lengths: &mut BTreeMap<Key, BTreeSet<u64>>,
    sends: &mut SendRow,
) -> OfProgram {
    let mut one = OfProgram::default();
    for node in &flat.nodes {
        let measured = written(workload, program, node.written).measured;
        one.measured_ps = one.measured_ps.saturating_add(measured.map_or(0, Duration::as_ps));
        match &node.step {
            Step::Compute(time) => one.compute_ps = one.compute_ps.saturating_add(time.as_ps()),
            Step::Collective(collective, _) => {
                let key = (collective.kind, collective.group, collective.element);
                let sum = one.collectives.entry(key).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(collective.bytes));
                lengths.entry(key).or_default().insert(collective.bytes);
            }
            Step::Send(transfer) => {
                one.sends = (one.sends.0 + 1, one.sends.1.saturating_add(transfer.bytes));
                let least = if sends.bytes.0 == 0 { transfer.bytes } else { sends.bytes.0.min(transfer.bytes) };
                sends.bytes = (least, sends.bytes.1.max(transfer.bytes));
            }
            Step::Receive(_) => {}
        }
    }
    one
}

/// Each collective counts once, for its first member.
fn count_in_all(workload: &Workload, checked: &Checked, of: &[OfProgram], rows: &mut BTreeMap<Key, CollectiveRow>) {
    let programs = workload.program_of_ranks();
    let mut firsts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for (group, places) in checked.places.iter().enumerate() {
        for (rank, place) in places.iter().enumerate() {
            if let (Some(program), Some(0)) = (programs[rank], place.map(|place| place.position)) {
                *firsts.entry((group as u32, program)).or_default() += 1;
            }
        }
    }
    for ((group, program), count) in firsts {
        for (key, (of_rank, _)) in of[program as usize].collectives.iter().filter(|(key, _)| key.1 == group) {
            if let Some(row) = rows.get_mut(key) {
                row.in_all = row.in_all.saturating_add(count.saturating_mul(*of_rank));
            }
        }
    }
}

fn group_rows(workload: &Workload) -> Vec<GroupRow> {
    let row = |group: &crate::model::Group| {
        let members = match &group.members {
            Members::Strided { size, .. } => (*size, *size),
            Members::Listed(all) => {
                let sizes = || all.iter().map(|members| members.len() as u32);
                (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0))
            }
        };
        GroupRow { name: printable(&group.name, NAME_MAX), instances: group.members.instances(workload.ranks), members }
    };
    workload.groups.iter().map(row).collect()
}
