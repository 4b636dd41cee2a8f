//! Stages of a pipeline: as many forward passes as there are stages behind, then one forward and one backward pass in turn, then what is left
//! (1F1B: Narayanan et al., arXiv 2104.04473, 2.2.1). Gradients are reduced beside the last backward pass.
//!
//! Interleaved (2.2.2 there), a rank has several parts of the model: of p ranks rank r has the parts r, r + p, r + 2p and so on. As many
//! micro-batches as there are ranks go through one of its parts before they go through the next. The order of passes, and how many forward ones
//! come first, are those of Megatron-LM (`megatron/core/pipeline_parallel/schedules.py`).

use super::buckets::{Bucket, buckets};
use super::build::{Division, Nodes, Rates, collective, named};
use super::layers::{Blocks, Layers};
use super::models::Transformer;
use super::settings::{Settings, Sharding};
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Program, Workload};

/// Nodes of a workload at most, in its file.
const NODES_MAX: u64 = 4_000_000;

/// A workload of one iteration.
///
/// # Errors
/// What does not fit.
pub fn workload(model: &Transformer, settings: &Settings, rates: Rates, division: Division) -> Result<Workload, String> {
    let division = division.tied(model.tied);
    let layers = Layers::new(model, settings, rates, division)?;
    let (blocks, numbers) = layers.blocks()?;
    let parts = u64::from(settings.pipeline).saturating_mul(u64::from(settings.virtual_stages));
    if parts.saturating_mul(u64::from(settings.micro_batches)).saturating_mul(8).saturating_add(model.layers * 6) > NODES_MAX {
        return Err(format!("--micro-batches {} in --pp {} stages: expected fewer", settings.micro_batches, settings.pipeline));
    }
    let mut programs = Vec::new();
    for stage in 0..settings.pipeline {
        let mut one = Stage { layers: &layers, settings, numbers, number: stage, parts, gradients: Vec::new(), nodes: Nodes::default() };
        one.schedule()?;
        let ranks = (stage * division.of_stage()..(stage + 1) * division.of_stage()).collect();
        let name = if settings.pipeline == 1 { "all".to_string() } else { format!("stage {stage}") };
        programs.push(Program { name: name.into(), ranks, nodes: one.nodes.list, line: 0 });
    }
    Ok(named(settings, division, programs, blocks))
}

struct Stage<'a> {
    layers: &'a Layers<'a>,
    settings: &'a Settings,
    numbers: Blocks,
    number: u32,
    /// Parts of the model, of all ranks.
    parts: u64,
    /// Of all of its parts.
    gradients: Vec<Gradients>,
    nodes: Nodes,
}

/// Gradients of a part of the model: by bucket, and of which group.
struct Gradients {
    buckets: Vec<Bucket>,
    group: u32,
    name: String,
    /// Reductions so far.
    done: Vec<u32>,
}

/// A pass: the micro-batch, and which of the rank's parts of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pass {
    batch: u32,
    part: u32,
}

/// The passes of a rank in their order. Forward and backward ones each have an order of their own; `ahead` of the former come first.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Order {
    ahead: u32,
    forward: Vec<Pass>,
    backward: Vec<Pass>,
}

/// The order of passes of rank `number` of `pipeline`, each of which has `parts` parts of the model.
fn order(number: u32, pipeline: u32, parts: u32, batches: u32) -> Order {
    let all = batches * parts;
    if parts == 1 {
        let passes: Vec<Pass> = (0..batches).map(|batch| Pass { batch, part: 0 }).collect();
        return Order { ahead: (pipeline - 1 - number).min(all), forward: passes.clone(), backward: passes };
    }
    // As many micro-batches as ranks go through a part before the next one.
    let pass =
        |index: u32| Pass { batch: index / (pipeline * parts) * pipeline + index % pipeline, part: index % (pipeline * parts) / pipeline };
    let forward: Vec<Pass> = (0..all).map(pass).collect();
    let backward = forward.iter().map(|pass| Pass { part: parts - 1 - pass.part, ..*pass }).collect();
    Order { ahead: ((pipeline - 1 - number) * 2 + (parts - 1) * pipeline).min(all), forward, backward }
}

impl Stage<'_> {
    fn is_first(&self, part: u32) -> bool {
        self.number == 0 && part == 0
    }

    fn is_last(&self, part: u32) -> bool {
        self.number + 1 == self.settings.pipeline && part + 1 == self.settings.virtual_stages
    }

    /// The layers of one of the rank's parts.
    fn layers_of(&self, part: u32) -> std::ops::Range<u64> {
        let place = u64::from(part) * u64::from(self.settings.pipeline) + u64::from(self.number);
        let bound = |place: u64| place * self.layers.model.layers / self.parts;
        bound(place)..bound(place + 1)
    }

    /// What tells a pass from others in the names of its nodes.
    fn name(&self, Pass { batch, part }: Pass) -> String {
        if self.settings.virtual_stages == 1 { batch.to_string() } else { format!("{batch} part {part}") }
    }

    fn schedule(&mut self) -> Result<(), String> {
        let count = self.settings.micro_batches;
        let Order { ahead, forward, backward } = order(self.number, self.settings.pipeline, self.settings.virtual_stages, count);
        let mut forward = forward.into_iter();
        for pass in forward.by_ref().take(ahead as usize).collect::<Vec<_>>() {
            self.forward(pass)?;
        }
        for pass in backward {
            if let Some(next) = forward.next() {
                self.forward(next)?;
            }
            if pass.batch + 1 < count { self.backward(pass)? } else { self.last_backward(pass)? }
        }
        self.tied()?;
        self.gather()
    }

    /// Runs of layers of a part that are alike: the first of them, and how many.
    fn runs(&self, part: u32) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for layer in self.layers_of(part) {
            match runs.last_mut() {
                Some((first, count)) if self.layers.model.has_experts(*first) == self.layers.model.has_experts(layer) => *count += 1,
                _ => runs.push((layer, 1)),
            }
        }
        runs
    }

    /// How far away the ranks with the part before are, and those with the part behind: the last rank's parts are before the first one's.
    fn neighbours(&self) -> (i64, i64) {
        let (stride, last) = (i64::from(self.layers.division.of_stage()), i64::from(self.settings.pipeline) - 1);
        let before = if self.number == 0 { last * stride } else { -stride };
        let behind = if i64::from(self.number) == last { -last * stride } else { stride };
        (before, behind)
    }

    fn forward(&mut self, pass: Pass) -> Result<(), String> {
        let (bytes, name, (before, behind)) = (self.layers.handed_over()?, self.name(pass), self.neighbours());
        if self.is_first(pass.part) {
            self.layers.embed(&mut self.nodes, &format!("embed {name}"))?;
        } else {
            self.nodes.receive(&format!("take {name}"), before, bytes, 0, "receive forward");
            self.layers.gather_handed_over(&mut self.nodes, &format!("gather {name}"))?;
        }
        for (number, (layer, count)) in self.runs(pass.part).into_iter().enumerate() {
            let block = self.numbers.of(self.layers.model, layer).0;
            self.nodes.call(&format!("forward {name}.{number}"), block, count, &[]);
        }
        if self.is_last(pass.part) {
            self.nodes.compute(&format!("output {name}"), self.layers.time(self.layers.model.output_operations())?);
        } else {
            self.nodes.send(&format!("hand on {name}"), behind, bytes, 0, "send forward");
        }
        Ok(())
    }

    fn begin_backward(&mut self, pass: Pass) -> Result<(), String> {
        let name = self.name(pass);
        if self.is_last(pass.part) {
            let time = self.layers.time(2.0 * self.layers.model.output_operations())?;
            self.nodes.compute(&format!("output back {name}"), time);
            return Ok(());
        }
        let bytes = self.layers.handed_over()?;
        self.nodes.receive(&format!("take back {name}"), self.neighbours().1, bytes, 1, "receive backward");
        self.layers.gather_handed_over(&mut self.nodes, &format!("gather back {name}"))
    }

    fn end_backward(&mut self, pass: Pass) -> Result<(), String> {
        if !self.is_first(pass.part) {
            let bytes = self.layers.handed_over()?;
            self.nodes.send(&format!("hand back {}", self.name(pass)), self.neighbours().0, bytes, 1, "send backward");
        }
        Ok(())
    }

    fn backward(&mut self, pass: Pass) -> Result<(), String> {
        self.begin_backward(pass)?;
        for (number, (layer, count)) in self.runs(pass.part).into_iter().rev().enumerate() {
            let block = self.numbers.of(self.layers.model, layer).1;
            self.nodes.call(&format!("backward {}.{number}", self.name(pass)), block, count, &[]);
        }
        self.end_backward(pass)
    }

    /// The gradients of one of the rank's parts of the model, from its front: the embedding, the layers, the output.
    fn gradients(&self, part: u32) -> Vec<Gradients> {
        let (model, tensor) = (self.layers.model, u64::from(self.settings.tensor));
        let own = |parameters: u64| parameters.div_ceil(tensor);
        let expert = u64::from(self.settings.expert);
        let mut dense = vec![if self.is_first(part) { vec![own(model.embedding())] } else { Vec::new() }];
        let mut routed = vec![Vec::new()];
        for layer in self.layers_of(part) {
            let experts = if model.has_experts(layer) { own(model.experts / expert * model.expert()) } else { 0 };
            // Without groups of their own experts are as all else.
            let (with, apart) = if expert > 1 { (0, experts) } else { (experts, 0) };
            dense.push([own(model.attention()), own(model.dense(layer)), with].into_iter().filter(|one| *one > 0).collect());
            routed.push(Vec::from_iter((apart > 0).then_some(apart)));
        }
        let mut output = if self.is_last(part) { vec![own(model.output())] } else { Vec::new() };
        // The last stage has a copy of the embedding's matrix, which is an own parameter to its data parallelism.
        output.extend((self.is_last(part) && self.layers.division.embedding().is_some()).then(|| own(model.vocabulary * model.hidden)));
        dense.push(output);
        let of = |parts: &[Vec<u64>]| buckets(parts, self.settings.gradient.bytes(), self.settings.bucket_bytes);
        let division = self.layers.division;
        let all = [(division.data(), dense, "gradients"), (division.expert_data(), routed, "gradients of experts")];
        let named = |name: &str| if self.settings.virtual_stages == 1 { name.to_string() } else { format!("{name} part {part}") };
        all.into_iter()
            .filter_map(|(group, parts, name)| Some(Gradients { buckets: of(&parts), group: group?, name: named(name), done: Vec::new() }))
            .collect()
    }

    /// The last backward pass of a part, beside which its gradients are reduced, layer by layer.
    fn last_backward(&mut self, pass: Pass) -> Result<(), String> {
        let mut gradients = self.gradients(pass.part);
        let layers = self.layers_of(pass.part);
        let (first, count) = (layers.start, (layers.end - layers.start) as usize);
        self.begin_backward(pass)?;
        self.reduce(&mut gradients, count + 1)?;
        for layer in layers.rev() {
            let block = self.numbers.of(self.layers.model, layer).1;
            self.nodes.call(&format!("backward layer {layer}"), block, 1, &[]);
            self.reduce(&mut gradients, (layer - first) as usize + 1)?;
        }
        self.end_backward(pass)?;
        self.reduce(&mut gradients, 0)?;
        self.gradients.append(&mut gradients);
        Ok(())
    }

    /// Reduces what is complete with a part.
    fn reduce(&mut self, gradients: &mut [Gradients], part: usize) -> Result<(), String> {
        let kind = match self.settings.sharding {
            Some(Sharding::Ddp) => CollectiveKind::AllReduce,
            _ => CollectiveKind::ReduceScatter,
        };
        let after: Vec<u32> = self.nodes.last.into_iter().collect();
        for one in gradients {
            while let Some(bucket) = one.buckets.get(one.done.len()).filter(|bucket| bucket.ready == part) {
                let action = collective(kind, one.group, bucket.elements, self.settings.gradient)?;
                one.done.push(self.nodes.beside(&format!("{} {}", one.name, one.done.len()), action, "data", &after));
            }
        }
        Ok(())
    }

    /// Whether the rank has one of the two copies of the matrix that the first and the last stage share.
    fn has_tied(&self) -> bool {
        (self.number == 0) != (self.number + 1 == self.settings.pipeline)
    }

    /// The gradients of the matrix that the first and the last stage share.
    fn tied(&mut self) -> Result<(), String> {
        let Some(group) = self.layers.division.embedding().filter(|_| self.has_tied()) else { return Ok(()) };
        let elements = (self.layers.model.vocabulary * self.layers.model.hidden).div_ceil(u64::from(self.settings.tensor));
        let action = collective(CollectiveKind::AllReduce, group, elements, self.settings.gradient)?;
        let mut after: Vec<u32> = self.nodes.last.into_iter().collect();
        after.extend(self.gradients.iter().flat_map(|one| one.done.last()));
        self.nodes.beside("gradients of the shared matrix", action, "embedding", &after);
        Ok(())
    }

    /// Gathers the parameters after the update, which waits for all gradients.
    fn gather(&mut self) -> Result<(), String> {
        if self.settings.sharding == Some(Sharding::Ddp) {
            return Ok(());
        }
        let mut after: Vec<u32> = self.gradients.iter().flat_map(|one| one.done.last().copied()).collect();
        after.extend(self.nodes.last);
        if self.layers.division.embedding().is_some() && self.has_tied() {
            after.push(self.nodes.list.len() as u32 - 1);
        }
        for one in &self.gradients {
            for (number, bucket) in one.buckets.iter().enumerate() {
                let action = collective(CollectiveKind::AllGather, one.group, bucket.elements, Element::Bf16)?;
                let name = one.name.replace("gradients", "parameters");
                self.nodes.beside(&format!("{name} {number}"), action, "data", &after);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(passes: &[Pass]) -> String {
        passes.iter().map(|pass| format!("{}{}", pass.batch, char::from(b'a' + pass.part as u8))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn passes_are_in_the_order_of_megatron() {
        // Two ranks with two parts each, four micro-batches.
        let first = order(0, 2, 2, 4);
        assert_eq!((first.ahead, text(&first.forward)), (4, "0a 1a 0b 1b 2a 3a 2b 3b".into()));
        assert_eq!(text(&first.backward), "0b 1b 0a 1a 2b 3b 2a 3a");
        let last = order(1, 2, 2, 4);
        assert_eq!((last.ahead, &last.forward, &last.backward), (2, &first.forward, &first.backward));
        // Without parts: 1F1B.
        let plain = order(1, 4, 1, 8);
        assert_eq!((plain.ahead, plain.forward.len(), plain.backward[3]), (2, 8, Pass { batch: 3, part: 0 }));
        assert_eq!(order(0, 4, 1, 2).ahead, 2);
        // No more come first than there are.
        assert_eq!(order(0, 4, 2, 4).ahead, 8);
    }
}
