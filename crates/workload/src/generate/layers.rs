//! Blocks for the layers of transformers: a forward and a backward pass of a layer, with the communication of tensor and expert parallelism.

use super::build::{Division, Nodes, Rates, collective, product};
use super::models::Transformer;
use super::settings::{Recompute, Settings};
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Block};

/// The stream of tensor parallelism.
pub const TENSOR_STREAM: &str = "tensor";
/// The stream of expert parallelism.
pub const EXPERT_STREAM: &str = "expert";

/// Blocks by kind of layer and by direction.
pub struct Layers<'a> {
    /// The model.
    pub model: &'a Transformer,
    /// How ranks are divided.
    pub division: Division,
    /// How fast computing goes.
    pub rates: Rates,
    /// Tokens of a pass.
    pub tokens: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    tensor: u64,
    sequence_parallel: bool,
    scatter_gather: bool,
    recompute: Recompute,
}

impl<'a> Layers<'a> {
    /// For a model and what is asked for.
    ///
    /// # Errors
    /// There are too many tokens, or what is divided cannot be.
    pub fn new(model: &'a Transformer, settings: &Settings, rates: Rates, division: Division) -> Result<Self, String> {
        let sequence = settings.sequence.map_or(model.sequence, u64::from);
        let tokens = product(&[sequence, u64::from(settings.micro_batch.unwrap_or(1))])?;
        if settings.expert > 1 && (model.experts == 0 || !model.experts.is_multiple_of(u64::from(settings.expert))) {
            return Err(format!("--ep {}: expected a divisor of {} experts", settings.expert, model.experts));
        }
        if u64::from(settings.pipeline) > model.layers {
            return Err(format!("--pp {}: expected at most {} layers", settings.pipeline, model.layers));
        }
        if product(&[u64::from(settings.pipeline), u64::from(settings.virtual_stages)])? > model.layers {
            let (parts, stages) = (settings.virtual_stages, settings.pipeline);
            return Err(format!("--virtual-stages {parts}: expected --pp {stages} times as many to be at most {} layers", model.layers));
        }
        if !model.heads.is_multiple_of(u64::from(settings.tensor)) {
            return Err(format!("--tp {}: expected a divisor of {} heads", settings.tensor, model.heads));
        }
        let sequence_parallel = settings.sequence_parallel && settings.tensor > 1;
        let (scatter_gather, recompute) = (settings.scatter_gather, settings.recompute);
        let tensor = u64::from(settings.tensor);
        Ok(Layers { model, division, rates, tokens, sequence, tensor, sequence_parallel, scatter_gather, recompute })
    }

    /// Elements of the activations between two layers.
    ///
    /// # Errors
    /// Too many.
    pub fn activations(&self) -> Result<u64, String> {
        product(&[self.tokens, self.model.hidden])
    }

    /// Bytes that a rank hands to the next stage.
    ///
    /// # Errors
    /// Too many.
    pub fn handed_over(&self) -> Result<u64, String> {
        let elements = self.activations()?;
        let own = if self.sequence_parallel || self.scatter_gather { elements.div_ceil(self.tensor) } else { elements };
        product(&[own, Element::Bf16.bytes()])
    }

    /// Where each rank of tensor parallelism was handed its share: they gather all of it.
    ///
    /// # Errors
    /// Too many elements.
    pub fn gather_handed_over(&self, nodes: &mut Nodes, id: &str) -> Result<(), String> {
        if self.scatter_gather { self.among_tensor(nodes, id, CollectiveKind::AllGather) } else { Ok(()) }
    }

    /// The time of operations for each token, divided among the ranks of tensor parallelism.
    ///
    /// # Errors
    /// It is too long.
    pub fn time(&self, operations_per_token: f64) -> Result<fanin_core::Duration, String> {
        self.rates.time(operations_per_token * self.tokens as f64 / self.tensor as f64)
    }

    /// A collective of tensor parallelism over all activations, where there is any.
    fn among_tensor(&self, nodes: &mut Nodes, id: &str, kind: CollectiveKind) -> Result<(), String> {
        if let Some(group) = self.division.tensor() {
            nodes.communicate(id, collective(kind, group, self.activations()?, Element::Bf16)?, TENSOR_STREAM);
        }
        Ok(())
    }

    /// What the ranks of tensor parallelism do with the embedding, of which each has a part of the words: a sum; with sequence parallelism
    /// each needs its own tokens of it only, unless learned positions or types are added first (Megatron, `reduce_scatter_embeddings`).
    ///
    /// # Errors
    /// Too many elements.
    pub fn embed(&self, nodes: &mut Nodes, id: &str) -> Result<(), String> {
        let is_scattered = self.sequence_parallel && self.model.positions == 0 && self.model.types == 0;
        self.among_tensor(nodes, id, if is_scattered { CollectiveKind::ReduceScatter } else { CollectiveKind::AllReduce })
    }

    /// A part of a layer: with sequence parallelism between an all-gather and a reduce-scatter, else before a sum. Backward it gathers its
    /// inputs again, beside computing, since no rank has kept all of them (Korthikanti et al., 4.2.2).
    fn part(
        &self,
        nodes: &mut Nodes,
        name: &str,
        is_forward: bool,
        inner: impl FnOnce(&mut Nodes) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.sequence_parallel {
            self.among_tensor(nodes, &format!("gather {name}"), CollectiveKind::AllGather)?;
            if let Some(group) = self.division.tensor().filter(|_| !is_forward) {
                let action = collective(CollectiveKind::AllGather, group, self.activations()?, Element::Bf16)?;
                let after: Vec<u32> = nodes.last.into_iter().collect();
                nodes.beside(&format!("gather inputs of {name}"), action, TENSOR_STREAM, &after);
            }
            inner(nodes)?;
            self.among_tensor(nodes, &format!("scatter {name}"), CollectiveKind::ReduceScatter)
        } else {
            inner(nodes)?;
            self.among_tensor(nodes, &format!("sum {name}"), CollectiveKind::AllReduce)
        }
    }

    /// Tokens to the experts, or back: each goes to as many ranks as there are active experts.
    fn exchange(&self, nodes: &mut Nodes, id: &str) -> Result<(), String> {
        let Some(group) = self.division.expert() else { return Ok(()) };
        let elements = product(&[self.activations()?, self.model.active])?;
        let own = if self.sequence_parallel { elements.div_ceil(self.tensor) } else { elements };
        let action: Action = collective(CollectiveKind::AllToAll, group, own, Element::Bf16)?;
        nodes.communicate(id, action, EXPERT_STREAM);
        Ok(())
    }

    fn perceptron(&self, nodes: &mut Nodes, layer: u64, factor: f64) -> Result<(), String> {
        let dense = self.time(factor * self.model.dense_operations(layer))?;
        if !self.model.has_experts(layer) {
            nodes.compute("perceptron", dense);
            return Ok(());
        }
        let is_forward = factor < 1.5;
        if is_forward {
            nodes.compute("router", dense);
        }
        self.exchange(nodes, if is_forward { "dispatch" } else { "combine" })?;
        nodes.compute("experts", self.time(factor * self.model.expert_operations())?);
        self.exchange(nodes, if is_forward { "combine" } else { "dispatch" })?;
        if !is_forward {
            nodes.compute("router", dense);
        }
        Ok(())
    }

    fn attend(&self, nodes: &mut Nodes, is_forward: bool) -> Result<(), String> {
        let factor = if is_forward { 1.0 } else { 2.0 };
        let again = !is_forward && self.recompute == Recompute::Selective;
        self.part(nodes, "attention", is_forward, |nodes| {
            if again {
                nodes.compute("attention products again", self.time(self.model.attention_products(self.sequence))?);
            }
            nodes.compute("attention", self.time(factor * self.model.attention_operations(self.sequence))?);
            Ok(())
        })
    }

    fn think(&self, nodes: &mut Nodes, layer: u64, is_forward: bool) -> Result<(), String> {
        let factor = if is_forward { 1.0 } else { 2.0 };
        self.part(nodes, "perceptron", is_forward, |nodes| self.perceptron(nodes, layer, factor))
    }

    fn block(&self, name: &str, layer: u64, is_forward: bool) -> Result<Block, String> {
        let mut nodes = Nodes::default();
        if is_forward || self.recompute == Recompute::Full {
            self.attend(&mut nodes, true)?;
            self.think(&mut nodes, layer, true)?;
        }
        if !is_forward {
            nodes.list.iter_mut().for_each(|node| node.id = format!("{} again", node.id).into());
            self.think(&mut nodes, layer, false)?;
            self.attend(&mut nodes, false)?;
        }
        Ok(Block { name: name.into(), nodes: nodes.list, line: 0 })
    }

    /// Blocks for the layers that the model has, in this order: dense forward, dense backward, with experts forward, with experts backward.
    ///
    /// # Errors
    /// Something is too large.
    pub fn blocks(&self) -> Result<(Vec<Block>, Blocks), String> {
        let mut blocks = Vec::new();
        let mut add = |forward: &str, backward: &str, layer: u64| -> Result<(u32, u32), String> {
            blocks.push(self.block(forward, layer, true)?);
            blocks.push(self.block(backward, layer, false)?);
            Ok((blocks.len() as u32 - 2, blocks.len() as u32 - 1))
        };
        let model = self.model;
        let dense_count = if model.experts > 0 { model.dense_layers } else { model.layers };
        let dense = if dense_count > 0 { Some(add("forward layer", "backward layer", 0)?) } else { None };
        let experts = if dense_count < model.layers { Some(add("forward experts", "backward experts", model.layers - 1)?) } else { None };
        let none = (0, 0);
        Ok((blocks, Blocks { dense: dense.unwrap_or(none), experts: experts.unwrap_or(none) }))
    }
}

/// Numbers of blocks: forward and backward.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    dense: (u32, u32),
    experts: (u32, u32),
}

impl Blocks {
    /// The blocks of a layer.
    pub fn of(self, model: &Transformer, layer: u64) -> (u32, u32) {
        if model.has_experts(layer) { self.experts } else { self.dense }
    }
}
