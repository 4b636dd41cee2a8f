//! Jobs whose hosts send each other messages.

use fanin_core::{CollectiveKind, Operator, Rank};
use fanin_systems::System;

use crate::draw::Draw;
use crate::recipe::JobRecipe;

/// Some jobs become jobs of messages between hosts: all that were wanted, or a few of those without servers. Half of their operations are of
/// other kinds than allreduce.
pub(super) fn exchange(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(4), |name| name == "exchange");
        if !wanted {
            continue;
        }
        job.system = System::exchange();
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
        let workers = job.hosts.len() as u32;
        let mut kind = || {
            let root = Rank(draw.between(0, u64::from(workers) - 1) as u32);
            match draw.between(0, 7) {
                0 | 1 => CollectiveKind::Allreduce,
                2 => CollectiveKind::Reduce { root },
                3 => CollectiveKind::Broadcast { root },
                4 => CollectiveKind::ReduceScatter,
                5 => CollectiveKind::AllGather,
                6 => CollectiveKind::AllToAll { workers },
                _ => CollectiveKind::Barrier,
            }
        };
        let kinds = job.elements.iter().map(|_| kind()).collect();
        job.set_kinds(kinds);
    }
}
