//! The bandwidth-occupation model (Rina III-B): what each worker can send when all send to one server along a tree, and some of the
//! switches on the way aggregate.
//!
//! A switch that aggregates sends one flow upwards, whatever comes from below; any other sends all that it gets (lemmas 1 and 2). A link
//! that carries n flows gives each of them an n-th of its rate, and since workers are synchronous, all go as fast as the slowest (lemma 3).
//! The way back is the same, turned round: a switch that aggregates also multicasts.

use crate::{Model, ModelError, Parameter, Quantity};

/// A tree of switches. The server is behind the root.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregationTree {
    switches: Vec<TreeSwitch>,
}

/// A switch of an [`AggregationTree`].
#[derive(Clone, PartialEq, Debug)]
pub struct TreeSwitch {
    /// The next switch on the way to the server; `None` for the root, the first switch.
    pub parent: Option<usize>,
    /// Rate of the link to the parent; of the root, to the server.
    pub uplink: f64,
    /// Rates of the links to workers that hang on it.
    pub workers: Vec<f64>,
    /// How fast it aggregates where it does: no faster than its links where this is infinite.
    pub aggregation: f64,
}

/// What holds all workers up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Occupation {
    /// What each worker can send, in the unit of the links' rates.
    pub throughput: f64,
    /// The switch whose uplink, workers or aggregation is the bottleneck; the one nearest to the server where several are.
    pub bottleneck: usize,
    /// How many flows share its uplink.
    pub flows: u32,
}

impl AggregationTree {
    /// A tree; the root comes first, and every other switch after its parent.
    ///
    /// # Panics
    /// Where that is not so.
    pub fn new(switches: Vec<TreeSwitch>) -> Self {
        for (index, switch) in switches.iter().enumerate() {
            assert!(switch.parent.map_or(index == 0, |parent| parent < index), "a switch comes after its parent");
        }
        AggregationTree { switches }
    }

    /// How many switches it has.
    pub fn len(&self) -> usize {
        self.switches.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty()
    }

    /// By switch: workers that hang on it.
    pub fn workers_on(&self) -> Vec<u32> {
        self.switches.iter().map(|switch| switch.workers.len() as u32).collect()
    }

    /// By switch: workers below it.
    pub fn workers_below(&self) -> Vec<u32> {
        let mut below = self.workers_on();
        for (index, switch) in self.switches.iter().enumerate().rev() {
            if let Some(parent) = switch.parent {
                below[parent] += below[index];
            }
        }
        below
    }

    /// How many groups there are when each worker, and, as one, all workers of an aggregating switch are a group (Rina IV-D): those that
    /// hang on it where it is one of `own_only`, all below it elsewhere.
    ///
    /// # Panics
    /// Where there is not one word for each switch.
    pub fn groups(&self, aggregates: &[bool], own_only: &[bool]) -> u32 {
        assert!(aggregates.len() == self.len() && own_only.len() == self.len(), "one word a switch");
        let mut groups = vec![0; self.len()];
        for (index, switch) in self.switches.iter().enumerate().rev() {
            let own = switch.workers.len() as u32;
            groups[index] = match (aggregates[index], own_only[index]) {
                (false, _) => groups[index] + own,
                (true, true) => groups[index] + own.min(1),
                (true, false) => (groups[index] + own).min(1),
            };
            if let Some(parent) = switch.parent {
                groups[parent] += groups[index];
            }
        }
        groups.first().copied().unwrap_or(0)
    }

    /// By switch: the flows that it sends upwards.
    pub fn flows(&self, aggregates: &[bool]) -> Vec<u32> {
        let mut flows = self.workers_on();
        for (index, switch) in self.switches.iter().enumerate().rev() {
            if aggregates[index] {
                flows[index] = flows[index].min(1);
            }
            if let Some(parent) = switch.parent {
                flows[parent] += flows[index];
            }
        }
        flows
    }

    /// What each worker can send where these switches aggregate.
    ///
    /// # Panics
    /// Where there is not one word for each switch.
    pub fn occupation(&self, aggregates: &[bool]) -> Occupation {
        self.occupation_with(aggregates, &self.flows(aggregates))
    }

    /// The same where so many flows share each switch's uplink, those of other trees among them.
    ///
    /// # Panics
    /// Where there is not one word and one number for each switch.
    pub fn occupation_with(&self, aggregates: &[bool], sharing: &[u32]) -> Occupation {
        assert!(aggregates.len() == self.len() && sharing.len() == self.len(), "one word and one number a switch");
        let mut worst = Occupation { throughput: f64::INFINITY, bottleneck: 0, flows: sharing.first().copied().unwrap_or(0) };
        for (index, (switch, &flows)) in self.switches.iter().zip(sharing).enumerate() {
            if flows == 0 {
                continue;
            }
            let slowest_worker = switch.workers.iter().copied().fold(f64::INFINITY, f64::min);
            let aggregation = if aggregates[index] { switch.aggregation } else { f64::INFINITY };
            let throughput = (switch.uplink / f64::from(flows)).min(slowest_worker).min(aggregation);
            if throughput < worst.throughput {
                worst = Occupation { throughput, bottleneck: index, flows };
            }
        }
        worst
    }

    /// The slowest aggregation of these switches, of those that make a group of two workers or more.
    pub fn slowest_aggregation(&self, aggregates: &[bool], own_only: &[bool]) -> f64 {
        let below = self.workers_below();
        let workers = |index: usize| if own_only[index] { self.switches[index].workers.len() as u32 } else { below[index] };
        let rates = self.switches.iter().enumerate().filter(|(index, _)| aggregates[*index] && workers(*index) >= 2);
        rates.map(|(_, switch)| switch.aggregation).fold(f64::INFINITY, f64::min)
    }
}

/// The tree of a k-ary fat tree with a worker at every host: a core, an aggregation switch a pod, all edge switches; links of rate 1.
pub fn fat_tree(ports: usize) -> AggregationTree {
    let switch = |parent, workers| TreeSwitch { parent, uplink: 1.0, workers: vec![1.0; workers], aggregation: f64::INFINITY };
    let half = ports / 2;
    let mut switches = vec![switch(None, 0)];
    switches.extend((0..ports).map(|_| switch(Some(0), 0)));
    switches.extend((0..ports * half).map(|edge| switch(Some(1 + edge / half), half)));
    AggregationTree::new(switches)
}

/// `fanin model bom`.
pub(crate) const FAT_TREE: Model = Model {
    name: "bom",
    title: "Rina: throughput of in-network aggregation to a server, by the switches of a k-ary fat tree that aggregate",
    about: "The bandwidth-occupation model (III-B) on the tree of a fat tree of three levels with a worker at each host: k^2 / 2 edge switches,\n\
            an aggregation switch a pod, and a core with the server behind it. Switches of a level are replaced pod by pod.\n\
            A link that carries n flows gives each an n-th; a switch that aggregates makes one flow of all that it gets.",
    parameters: &[
        Parameter {
            key: "ports",
            title: "ports of a switch, an even number (k)",
            usual: 4.0,
            whole: true,
            low: 2.0,
            high: 64.0,
            inclusive: true,
        },
        Parameter { key: "edges", title: "edge switches that aggregate", usual: 0.0, whole: true, low: 0.0, high: 2048.0, inclusive: true },
        Parameter {
            key: "pods",
            title: "pods whose aggregation switch aggregates",
            usual: 0.0,
            whole: true,
            low: 0.0,
            high: 64.0,
            inclusive: true,
        },
        Parameter { key: "core", title: "1 where the core aggregates", usual: 0.0, whole: true, low: 0.0, high: 1.0, inclusive: true },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "workers", title: "workers (n)", equation: "k^3 / 4" },
        Quantity { key: "replaced", title: "switches that aggregate", equation: "edges + pods + core" },
        Quantity { key: "replaced_share", title: "their share of the tree's switches", equation: "replaced / (k^2 / 2 + k + 1)" },
        Quantity { key: "throughput", title: "throughput of a worker, as a share of a link's rate", equation: "lemmas 1 to 3" },
        Quantity { key: "flows", title: "flows on the link that is the bottleneck", equation: "lemmas 1 and 2" },
    ],
    evaluate: |parameters| {
        let &[ports, edges, pods, core] = parameters else { unreachable!("four parameters") };
        let refused = |key, value, expected: String| Err(ModelError { key, value, expected });
        if ports % 2.0 != 0.0 {
            return refused("ports", ports, "an even number".into());
        }
        for (key, value, most) in [("edges", edges, ports * ports / 2.0), ("pods", pods, ports)] {
            if value > most {
                return refused(key, value, format!("at most {most}, of which there are as many"));
            }
        }
        let tree = fat_tree(ports as usize);
        let (first_edge, last_pod) = (1 + ports as usize, pods as usize);
        let aggregates: Vec<bool> = (0..tree.len())
            .map(|switch| match switch {
                0 => core == 1.0,
                pod if pod < first_edge => pod <= last_pod,
                edge => edge - first_edge < edges as usize,
            })
            .collect();
        let replaced = edges + pods + core;
        let Occupation { throughput, flows, .. } = tree.occupation(&aggregates);
        Ok(vec![ports * ports * ports / 4.0, replaced, replaced / tree.len() as f64, throughput, f64::from(flows)])
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn share(edges: u32, pods: u32, core: u32) -> f64 {
        FAT_TREE.evaluate(&[4.0, f64::from(edges), f64::from(pods), f64::from(core)]).expect("in range")[3]
    }

    /// Rina, Fig. 4: switch 4 is next to the server and has a worker and switch 3, which aggregates; below that are two workers and switch
    /// 2, and four workers hang below switch 2.
    #[test]
    fn the_example_of_the_paper_gives_a_quarter() {
        let switch = |parent, workers| TreeSwitch { parent, uplink: 1.0, workers: vec![1.0; workers], aggregation: f64::INFINITY };
        let tree = AggregationTree::new(vec![switch(None, 1), switch(Some(0), 2), switch(Some(1), 4)]);
        let occupation = tree.occupation(&[false, true, false]);
        assert_eq!(occupation, Occupation { throughput: 0.25, bottleneck: 2, flows: 4 });
        // Switch 4 alone would allow half, and switch 3 all.
        let without = AggregationTree::new(vec![switch(None, 1), switch(Some(0), 2)]);
        assert_eq!(without.occupation(&[false, true]).throughput, 0.5);
        assert_eq!(tree.groups(&[false, true, false], &[true, false, true]), 2);
        assert_eq!(tree.groups(&[false, true, false], &[true; 3]), 6);
    }

    /// `targets.md`, Rina Fig. 5: nothing exceeds a half before the last of 13 switches, from the top or from the bottom.
    #[test]
    fn a_fat_tree_is_slow_until_its_last_switch_is_replaced() {
        assert_eq!((share(0, 0, 0), share(0, 0, 1)), (1.0 / 16.0, 0.25));
        assert!((0..4).all(|pods| share(0, pods, 1) == 0.25));
        assert!((0..8).all(|edges| share(edges, 4, 1) == 0.5));
        assert_eq!(share(8, 4, 1), 1.0);
        assert_eq!((share(8, 0, 0), share(8, 4, 0)), (0.125, 0.25));
        let tree = fat_tree(4);
        for set in 0..(1u32 << 13) - 1 {
            let aggregates: Vec<bool> = (0..13).map(|switch| set >> switch & 1 == 1).collect();
            assert!(tree.occupation(&aggregates).throughput <= 0.5, "{set:b}");
        }
    }

    #[test]
    fn slow_links_and_slow_aggregation_hold_all_up() {
        let mut switches = fat_tree(4).switches;
        switches[7].aggregation = 0.2;
        switches[9].workers[0] = 0.1;
        let tree = AggregationTree::new(switches);
        assert_eq!(tree.occupation(&[true; 13]), Occupation { throughput: 0.1, bottleneck: 9, flows: 1 });
        assert_eq!(tree.workers_below()[..6], [16, 4, 4, 4, 4, 2]);
    }

    #[test]
    fn what_the_tree_does_not_have_is_refused() {
        let refused = |parameters: [f64; 4]| FAT_TREE.evaluate(&parameters).expect_err("refused").to_string();
        assert_eq!(refused([4.0, 9.0, 0.0, 0.0]), "edges = 9: expected at most 8, of which there are as many");
        assert_eq!(refused([5.0, 0.0, 0.0, 0.0]), "ports = 5: expected an even number");
    }
}
