//! Parameters that are gathered layer by layer (FSDP: Zhao et al., arXiv 2304.11277; ZeRO-3: Rajbhandari et al., arXiv 1910.02054). Two layers
//! are gathered ahead at most, forward and backward; gradients are reduced and scattered beside the next layer's backward pass.

use super::build::{Division, Nodes, Rates, collective, named};
use super::layers::Layers;
use super::models::Transformer;
use super::settings::Settings;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Program, Workload};

/// Layers that are gathered ahead.
const AHEAD: usize = 2;
/// Nodes of a workload at most, in its file.
const NODES_MAX: u64 = 4_000_000;

struct Sharded<'a> {
    settings: &'a Settings,
    group: Option<u32>,
    nodes: Nodes,
}

/// A workload of one iteration.
///
/// # Errors
/// What does not fit.
pub fn workload(model: &Transformer, settings: &Settings, rates: Rates, division: Division) -> Result<Workload, String> {
    if settings.pipeline > 1 || settings.expert > 1 {
        return Err("--sharding fsdp: expected neither --pp nor --ep".into());
    }
    if u64::from(settings.micro_batches) * model.layers * 6 > NODES_MAX {
        return Err(format!("--micro-batches {}: expected fewer", settings.micro_batches));
    }
    let layers = Layers::new(model, settings, rates, division)?;
    let (blocks, numbers) = layers.blocks()?;
    let mut one = Sharded { settings, group: division.data(), nodes: Nodes::default() };
    let own = |parameters: u64| parameters.div_ceil(u64::from(settings.tensor));
    let root = own(model.embedding() + model.output());
    // Of all passes: gathers are ahead of them where one ends and the next begins, too, but no further than elsewhere.
    let mut passed = Vec::new();
    for batch in 0..settings.micro_batches {
        let after = one.ahead(&passed);
        let gathered = one.gather(&format!("embedding {batch}"), root, &after)?;
        one.wait(gathered);
        layers.embed(&mut one.nodes, &format!("embed {batch}"))?;
        for layer in 0..model.layers {
            let name = format!("forward {batch}.{layer}");
            let after = one.ahead(&passed);
            let gathered = one.gather(&name, own(model.layer(layer)), &after)?;
            passed.push(one.nodes.call(&name, numbers.of(model, layer).0, 1, &Vec::from_iter(gathered)));
        }
        one.nodes.compute(&format!("output {batch}"), layers.time(3.0 * model.output_operations())?);
        for layer in (0..model.layers).rev() {
            let name = format!("backward {batch}.{layer}");
            let after = one.ahead(&passed);
            let gathered = one.gather(&name, own(model.layer(layer)), &after)?;
            passed.push(one.nodes.call(&name, numbers.of(model, layer).1, 1, &Vec::from_iter(gathered)));
            one.reduce(&format!("gradients {batch}.{layer}"), own(model.layer(layer)))?;
        }
        one.reduce(&format!("gradients embedding {batch}"), root)?;
    }
    let program = Program { name: "all".into(), ranks: (0..division.ranks()).collect(), nodes: one.nodes.list, line: 0 };
    Ok(named(settings, division, vec![program], blocks))
}

impl Sharded<'_> {
    /// The pass that must be over before one more is gathered.
    fn ahead(&self, passed: &[u32]) -> Vec<u32> {
        passed.len().checked_sub(AHEAD).and_then(|place| passed.get(place)).copied().into_iter().collect()
    }

    fn gather(&mut self, name: &str, elements: u64, after: &[u32]) -> Result<Option<u32>, String> {
        let Some(group) = self.group else { return Ok(None) };
        let action = collective(CollectiveKind::AllGather, group, elements, Element::Bf16)?;
        Ok(Some(self.nodes.beside(&format!("gather for {name}"), action, "gather", after)))
    }

    /// What comes next comes after this, too.
    fn wait(&mut self, gathered: Option<u32>) {
        self.nodes.last = gathered.or(self.nodes.last);
    }

    fn reduce(&mut self, name: &str, elements: u64) -> Result<(), String> {
        let Some(group) = self.group else { return Ok(()) };
        let action = collective(CollectiveKind::ReduceScatter, group, elements, self.settings.gradient)?;
        let after: Vec<u32> = self.nodes.last.into_iter().collect();
        self.nodes.beside(name, action, "reduce", &after);
        Ok(())
    }
}
