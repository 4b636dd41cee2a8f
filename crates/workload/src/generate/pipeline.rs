//! Stages of a pipeline: as many forward passes as there are stages behind, then one forward and one backward pass in turn, then what is left
//! (1F1B: Narayanan et al., arXiv 2104.04473, 2.2.1). Gradients are reduced beside the last backward pass.

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
    if u64::from(settings.pipeline) * u64::from(settings.micro_batches) * 8 + model.layers * 6 > NODES_MAX {
        return Err(format!("--micro-batches {} in --pp {} stages: expected fewer", settings.micro_batches, settings.pipeline));
    }
    let mut programs = Vec::new();
    for stage in 0..settings.pipeline {
        let bound = |stage: u32| u64::from(stage) * model.layers / u64::from(settings.pipeline);
        let mut one =
            Stage { layers: &layers, settings, numbers, number: stage, from: bound(stage), to: bound(stage + 1), nodes: Nodes::default() };
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
    /// Its layers.
    from: u64,
    to: u64,
    nodes: Nodes,
}

/// Gradients of a stage: by bucket, and of which group.
struct Gradients {
    buckets: Vec<Bucket>,
    group: u32,
    name: &'static str,
    /// Reductions so far.
    done: Vec<u32>,
}

impl Stage<'_> {
    fn is_first(&self) -> bool {
        self.number == 0
    }

    fn is_last(&self) -> bool {
        self.number + 1 == self.settings.pipeline
    }

    fn schedule(&mut self) -> Result<(), String> {
        let count = self.settings.micro_batches;
        let ahead = (self.settings.pipeline - 1 - self.number).min(count);
        for batch in 0..ahead {
            self.forward(batch)?;
        }
        for batch in 0..count {
            if ahead + batch < count {
                self.forward(ahead + batch)?;
            }
            if batch + 1 < count {
                self.backward(batch)?;
            }
        }
        self.last_backward(count - 1)
    }

    /// Runs of layers of the stage that are alike: the first of them, and how many.
    fn runs(&self) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for layer in self.from..self.to {
            match runs.last_mut() {
                Some((first, count)) if self.layers.model.has_experts(*first) == self.layers.model.has_experts(layer) => *count += 1,
                _ => runs.push((layer, 1)),
            }
        }
        runs
    }

    fn stride(&self) -> i64 {
        i64::from(self.layers.division.of_stage())
    }

    fn forward(&mut self, batch: u32) -> Result<(), String> {
        let bytes = self.layers.handed_over()?;
        if self.is_first() {
            self.layers.embed(&mut self.nodes, &format!("embed {batch}"))?;
        } else {
            self.nodes.receive(&format!("take {batch}"), -self.stride(), bytes, 0, "receive forward");
        }
        for (number, (layer, count)) in self.runs().into_iter().enumerate() {
            let block = self.numbers.of(self.layers.model, layer).0;
            self.nodes.call(&format!("forward {batch}.{number}"), block, count, &[]);
        }
        if self.is_last() {
            self.nodes.compute(&format!("output {batch}"), self.layers.time(self.layers.model.output_operations())?);
        } else {
            self.nodes.send(&format!("hand on {batch}"), self.stride(), bytes, 0, "send forward");
        }
        Ok(())
    }

    fn begin_backward(&mut self, batch: u32) -> Result<(), String> {
        if self.is_last() {
            let time = self.layers.time(2.0 * self.layers.model.output_operations())?;
            self.nodes.compute(&format!("output back {batch}"), time);
        } else {
            let bytes = self.layers.handed_over()?;
            self.nodes.receive(&format!("take back {batch}"), self.stride(), bytes, 1, "receive backward");
        }
        Ok(())
    }

    fn end_backward(&mut self, batch: u32) -> Result<(), String> {
        if !self.is_first() {
            let bytes = self.layers.handed_over()?;
            self.nodes.send(&format!("hand back {batch}"), -self.stride(), bytes, 1, "send backward");
        }
        Ok(())
    }

    fn backward(&mut self, batch: u32) -> Result<(), String> {
        self.begin_backward(batch)?;
        for (number, (layer, count)) in self.runs().into_iter().rev().enumerate() {
            let block = self.numbers.of(self.layers.model, layer).1;
            self.nodes.call(&format!("backward {batch}.{number}"), block, count, &[]);
        }
        self.end_backward(batch)
    }

    /// The gradients of the stage, by part from the front: the embedding, the layers, the output.
    fn gradients(&self) -> Vec<Gradients> {
        let (model, tensor) = (self.layers.model, u64::from(self.settings.tensor));
        let own = |parameters: u64| parameters.div_ceil(tensor);
        let expert = u64::from(self.settings.expert);
        let mut dense = vec![if self.is_first() { vec![own(model.embedding())] } else { Vec::new() }];
        let mut routed = vec![Vec::new()];
        for layer in self.from..self.to {
            let experts = if model.has_experts(layer) { own(model.experts / expert * model.expert()) } else { 0 };
            // Without groups of their own experts are as all else.
            let (with, apart) = if expert > 1 { (0, experts) } else { (experts, 0) };
            dense.push([own(model.attention()), own(model.dense(layer)), with].into_iter().filter(|one| *one > 0).collect());
            routed.push(Vec::from_iter((apart > 0).then_some(apart)));
        }
        let mut output = if self.is_last() { vec![own(model.output())] } else { Vec::new() };
        // The last stage has a copy of the embedding's matrix, which is an own parameter to its data parallelism.
        output.extend((self.is_last() && self.layers.division.embedding().is_some()).then(|| own(model.vocabulary * model.hidden)));
        dense.push(output);
        let of = |parts: &[Vec<u64>]| buckets(parts, self.settings.gradient.bytes(), self.settings.bucket_bytes);
        let division = self.layers.division;
        let all = [(division.data(), dense, "gradients"), (division.expert_data(), routed, "gradients of experts")];
        all.into_iter()
            .filter_map(|(group, parts, name)| Some(Gradients { buckets: of(&parts), group: group?, name, done: Vec::new() }))
            .collect()
    }

    /// The backward pass beside which gradients are reduced, layer by layer.
    fn last_backward(&mut self, batch: u32) -> Result<(), String> {
        let mut gradients = self.gradients();
        let parts = (self.to - self.from) as usize;
        self.begin_backward(batch)?;
        self.reduce(&mut gradients, parts + 1)?;
        for layer in (self.from..self.to).rev() {
            let block = self.numbers.of(self.layers.model, layer).1;
            self.nodes.call(&format!("backward layer {layer}"), block, 1, &[]);
            self.reduce(&mut gradients, (layer - self.from) as usize + 1)?;
        }
        self.end_backward(batch)?;
        self.reduce(&mut gradients, 0)?;
        self.tied(&mut gradients)?;
        self.gather(&gradients)
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

    /// The gradients of the matrix that the first and the last stage share.
    fn tied(&mut self, gradients: &mut [Gradients]) -> Result<(), String> {
        let Some(group) = self.layers.division.embedding().filter(|_| self.is_first() != self.is_last()) else { return Ok(()) };
        let elements = (self.layers.model.vocabulary * self.layers.model.hidden).div_ceil(u64::from(self.settings.tensor));
        let action = collective(CollectiveKind::AllReduce, group, elements, self.settings.gradient)?;
        let mut after: Vec<u32> = self.nodes.last.into_iter().collect();
        after.extend(gradients.iter().flat_map(|one| one.done.last()));
        self.nodes.beside("gradients of the shared matrix", action, "embedding", &after);
        Ok(())
    }

    /// Gathers the parameters after the update, which waits for all gradients.
    fn gather(&mut self, gradients: &[Gradients]) -> Result<(), String> {
        if self.settings.sharding == Some(Sharding::Ddp) {
            return Ok(());
        }
        let mut after: Vec<u32> = gradients.iter().flat_map(|one| one.done.last().copied()).collect();
        after.extend(self.nodes.last);
        if self.layers.division.embedding().is_some() && self.is_first() != self.is_last() {
            after.push(self.nodes.list.len() as u32 - 1);
        }
        for one in gradients {
            for (number, bucket) in one.buckets.iter().enumerate() {
                let action = collective(CollectiveKind::AllGather, one.group, bucket.elements, Element::Bf16)?;
                let name = one.name.replace("gradients", "parameters");
                self.nodes.beside(&format!("{name} {number}"), action, "data", &after);
            }
        }
        Ok(())
    }
}
