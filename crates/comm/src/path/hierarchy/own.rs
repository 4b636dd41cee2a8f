//! Reductions by operators that the job has brought along, where ranks share hosts.
//!
//! What the ranks of a host have combined is a contribution to what hosts combine, where elements are what the operator accumulates and nothing
//! comes before or after that ([`CustomOperator::for_levels`]). Ranks that share memory combine by such an operator as they do by any other, in
//! their order; and hosts, or their switches, combine what comes of it.
//!
//! Accumulators of other operators cannot be combined with each other: a module only adds elements to one. Their vectors are gathered, part by
//! part, and every rank reduces them in the order of ranks: with the bits of a job whose ranks share no host.

use std::collections::BTreeMap;
use std::ops::Range;

use fanin_control::{CustomCall, FailureKind};
use fanin_core::{CollectiveKind, DType, Rank};
use fanin_operator::CustomOperator;

use super::{HierarchyPath, Levels, MEANS, Run};
use crate::call::{Buffers, CallOp, copies};
use crate::config::{Config, Notices};
use crate::error::CommError;
use crate::path::fabric::own::by_ranks;
use crate::path::operators::Operators;
use crate::path::whole::{GATHERED_BYTES, overlap};

/// The operators of a job, at one of its ranks.
pub(super) struct OwnOperators {
    job: String,
    notices: Notices,
    /// Whether switches combine by those that they can.
    at_switches: bool,
    known: Vec<CustomOperator>,
    at_work: Operators,
    /// Of those that were asked for: whether what they have combined is a contribution.
    in_steps: BTreeMap<u8, bool>,
    /// A part of all ranks' vectors.
    gathered: Vec<u8>,
}

impl OwnOperators {
    pub(super) fn new(config: &Config) -> Self {
        OwnOperators {
            job: config.job.clone(),
            notices: config.notices.clone(),
            at_switches: config.is_flare(),
            known: config.operators.clone(),
            at_work: Operators::new(&config.operators),
            in_steps: BTreeMap::new(),
            gathered: Vec::new(),
        }
    }

    /// Whether what an operator has combined is a contribution. Where it is not, and switches were asked for, this rank is told so once.
    pub(super) fn combines_in_steps(&mut self, index: u8) -> bool {
        if let Some(known) = self.in_steps.get(&index) {
            return *known;
        }
        let Some(operator) = self.known.get(usize::from(index)) else { return true };
        let refused = operator.clone().for_levels(operator.layout().element_bytes).err();
        if let Some(why) = refused.as_ref().filter(|_| self.at_switches) {
            self.notices.tell(&by_ranks(&self.job, operator.name(), &why.to_string()));
        }
        self.in_steps.insert(index, refused.is_none());
        refused.is_none()
    }
}

impl Levels {
    /// An operator has failed at this rank, as it does at all that reduce by it.
    fn failed_by_operator(&self, text: String) -> CommError {
        let rank = self.hosts[self.host].ranks[self.place];
        let marked = format!("{text}{MEANS}{rank}]");
        self.local.abort(&marked);
        if let Some(between) = &self.between {
            between.abort(&marked);
        }
        let job = self.job.clone();
        self.failed(CommError::Failed { job, text, suspect_rank: Some(rank), kind: Some(FailureKind::Operator) })
    }
}

impl Run<'_> {
    /// A reduction of vectors that every rank gets, by itself.
    pub(super) fn gathered(self, custom: CustomCall, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let (mut shares, mut gathered) = (std::mem::take(&mut self.path.shares), std::mem::take(&mut self.path.own.gathered));
        let mut at_work = std::mem::replace(&mut self.path.own.at_work, Operators::new(&[]));
        let result = self.reduce_gathered(custom, buffers, (&mut shares, &mut gathered), &mut at_work);
        let HierarchyPath { shares: kept, own, .. } = self.path;
        (*kept, own.gathered, own.at_work) = (shares, gathered, at_work);
        result
    }

    fn reduce_gathered(
        &self,
        custom: CustomCall,
        buffers: &mut Buffers<'_>,
        (shares, gathered): (&mut Vec<u8>, &mut Vec<u8>),
        operators: &mut Operators,
    ) -> Result<(), CommError> {
        let (call, width) = (self.call, custom.element_bytes as usize);
        let length = self.bytes() * call.shares() as usize;
        let (wanted, step) = (self.received(), (GATHERED_BYTES / width).max(1) * width);
        for from in (0..length).step_by(step) {
            let chunk = from..length.min(from + step);
            let input: &[u8] = match buffers {
                Buffers::InPlace(vector) => &vector[chunk.clone()],
                Buffers::Apart { input, .. } => &input[chunk.clone()],
            };
            gathered.resize(call.world as usize * chunk.len(), 0);
            shares.resize(self.path.levels.hosts.len() * self.most() * chunk.len(), 0);
            let as_bytes = (chunk.len(), self.most(), CallOp::BuiltIn(copies(DType::U8)));
            self.gather(&mut Buffers::Apart { input, output: gathered }, shares, as_bytes)?;
            let Some(part) = overlap(wanted.clone(), chunk.clone()) else { continue };
            let within = part.start - from..part.end - from;
            let inputs = gathered.chunks_exact(chunk.len()).map(|vector| &vector[within.clone()]);
            let output = match buffers {
                Buffers::InPlace(vector) => &mut vector[part],
                Buffers::Apart { output, .. } => &mut output[part.start - wanted.start..part.end - wanted.start],
            };
            operators.reduce(custom.index, call.world, inputs, output).map_err(|error| {
                let text = operators.fault().map_or_else(|| error.to_string(), str::to_owned);
                self.path.levels.failed_by_operator(text)
            })?;
        }
        Ok(())
    }

    /// Which bytes of the whole vector this rank gets.
    fn received(&self) -> Range<usize> {
        let (bytes, rank) = (self.bytes(), self.call.rank as usize);
        match self.call.kind {
            CollectiveKind::ReduceScatter => rank * bytes..(rank + 1) * bytes,
            kind if kind.receives(Rank(self.call.rank), 0) => 0..bytes,
            _ => 0..0,
        }
    }
}
