//! Flare: a switch of many cores that aggregates packets of blocks (4 and 5): where packets queue, how long a block takes, how much
//! memory that needs, and what bandwidth is left. By formulas, and by [`fanin_processor`], which simulates it.
//!
//! Of the paper two pages were at hand, damaged. Q, its sum over all cores and L stand there in words and in part; the service times of
//! the designs are derived (flare 6). Sparse vectors are in `sparse`.

pub(crate) mod sparse;

use fanin_processor::{Arrivals, Config, ConfigError, Design, Map, Scheduling, Sending, run};

use crate::{Choice, Model, ModelError, Parameter, Quantity};

/// What the formulas take, in cycles where it is a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Processor {
    /// Cores (K).
    pub cores: f64,
    /// Cores that a block may be processed by (S).
    pub subset: f64,
    /// Packets of a block (P).
    pub children: f64,
    /// Cycles between two packets at the switch (delta).
    pub interarrival: f64,
    /// Cycles between two packets of a block (delta_c).
    pub of_block: f64,
    /// Cycles to add a packet (A).
    pub add: f64,
    /// Working memory.
    pub design: Design,
}

/// What the formulas give, in cycles where it is a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Cycles between two packets at a core while a block's come (delta_k).
    pub of_core: f64,
    /// Cycles that a packet takes a core (tau).
    pub service: f64,
    /// Packets a cycle (Bw).
    pub bandwidth: f64,
    /// The most packets that wait before a core (Q).
    pub queue: f64,
    /// The most packets in the switch.
    pub packets: f64,
    /// Cycles from a block's first packet to its end (L).
    pub latency: f64,
    /// Buffers of working memory (R).
    pub buffers: f64,
}

impl Processor {
    /// Evaluates the formulas.
    pub fn predict(&self) -> Prediction {
        let (cores, subset, children) = (self.cores, self.subset, self.children);
        // Its subset's cores share a block's packets; in the long run each core gets one in K.
        let of_core = (subset * self.of_block).min(cores * self.interarrival);
        let service = self.service();
        let bandwidth = (cores / service).min(1.0 / self.interarrival);
        let queue = if service > of_core { children / subset * (1.0 - of_core / service) } else { 0.0 };
        let latency = (children - 1.0) * self.of_block + (queue + 1.0) * service;
        Prediction {
            of_core,
            service,
            bandwidth,
            queue,
            packets: (queue + 1.0) * cores,
            latency,
            buffers: self.buffers_of_block() * latency * bandwidth / children,
        }
    }

    /// Cycles that a packet takes a core, what it waits for locks among them (flare 6).
    fn service(&self) -> f64 {
        let Processor { add, subset, children, of_block, .. } = *self;
        match self.design {
            Design::Fixed => add,
            Design::Single if of_block >= add => add,
            // One packet every A cycles a subset, whatever the number of its cores; those of a block never keep more than P of them busy.
            Design::Single => subset.min(children) * add,
            Design::Multiple(buffers) => {
                let buffers = f64::from(buffers);
                let merging = (buffers.min(children) - 1.0) * add / children;
                let alone = buffers * of_block >= add;
                if alone { add + merging } else { add.max(subset.min(children) * add / buffers) + merging }
            }
            Design::Tree => (children - 1.0) / children * add,
        }
    }

    /// Buffers that a block has while it is under way. A tree's are there only from a pair's sum on: at most one for two leaves.
    fn buffers_of_block(&self) -> f64 {
        match self.design {
            Design::Fixed | Design::Single => 1.0,
            Design::Multiple(buffers) => f64::from(buffers),
            Design::Tree => (self.children - 1.0) / libm::log2(self.children).max(1.0),
        }
    }
}

const DESIGNS: &[&str] = &["fixed", "single", "multiple", "tree"];
const ELEMENTS: &[&str] = &["int32", "float32", "int16", "int8"];

const fn whole(key: &'static str, title: &'static str, usual: f64, low: f64, high: f64) -> Parameter {
    Parameter { key, title, usual, whole: true, low, high, inclusive: true }
}

const fn number(key: &'static str, title: &'static str, usual: f64, low: f64, high: f64) -> Parameter {
    Parameter { key, title, usual, whole: false, low, high, inclusive: true }
}

const fn quantity(key: &'static str, title: &'static str, equation: &'static str) -> Quantity {
    Quantity { key, title, equation }
}

const CORES: Parameter = whole("cores", "cores (K)", 32.0, 1.0, 4096.0);
const SUBSET: Parameter = whole("subset", "cores that a block may be processed by (S)", 8.0, 1.0, 4096.0);
const CHILDREN: Parameter = whole("children", "children, a packet of a block from each (P)", 16.0, 1.0, 1024.0);
const BLOCKS: Parameter = whole("blocks", "blocks of a vector (N_b)", 64.0, 1.0, 1e6);
const INTERARRIVAL: Parameter = number("interarrival", "cycles between two packets at the switch (delta)", 21.28, 0.001, 1e6);
const PAYLOAD: Parameter = whole("payload", "bytes of elements in a packet", 1024.0, 4.0, 65_536.0);
const ELEMENT: Parameter = whole("element", "type of elements; two int16 or four int8 are added at once", 1.0, 0.0, 3.0);
const WORD: Parameter = number("word", "cycles to add 32 bits of elements", 4.0, 0.001, 1e4);
const DESIGN: Parameter = whole("design", "working memory of a block; fixed: none, a packet takes a core for an addition", 1.0, 0.0, 3.0);
const BUFFERS: Parameter = whole("buffers", "buffers of a block where there are several (M)", 4.0, 1.0, 1024.0);
const CLOCK: Parameter = number("clock", "GHz of the cores", 1.0, 0.001, 100.0);

/// Cycles to add a packet of this payload: a word of 32 bits at a time, whatever is in it (flare 6).
fn add_cycles(payload: f64, element: f64, word: f64) -> f64 {
    // Lanes of a type: one of 32 bits, two of 16, four of 8.
    let lanes = [1.0, 1.0, 2.0, 4.0][element as usize];
    payload / 4.0 * word / lanes
}

fn design_of(design: f64, buffers: f64) -> Design {
    match design as u32 {
        0 => Design::Fixed,
        1 => Design::Single,
        2 => Design::Multiple(buffers as u32),
        _ => Design::Tree,
    }
}

/// `fanin model flare`.
pub(crate) const PROCESSOR: Model = Model {
    name: "flare",
    title: "Flare: queues, latency, memory and bandwidth of a switch of many cores, by formulas",
    about: "Packets of a block come delta_c cycles apart, and go to a subset of S of the K cores (hierarchical FCFS, 5): delta_c = delta where hosts\n\
            send their blocks in the same order, up to N_b delta where they are staggered. An addition takes A cycles; how long a packet\n\
            takes a core depends on how working memory is organised. Only a damaged copy of sections 4 and 5 was at hand: Q, its sum and\n\
            L are reconstructed from it, and the service times are derived; fanin model flare-run simulates the same.",
    parameters: &[
        CORES,
        SUBSET,
        CHILDREN,
        BLOCKS,
        INTERARRIVAL,
        number("stagger", "how far apart a block's packets are: 0 as all packets, 1 as much as the blocks allow", 0.0, 0.0, 1.0),
        PAYLOAD,
        ELEMENT,
        WORD,
        DESIGN,
        BUFFERS,
        CLOCK,
    ],
    choices: &[Choice { key: "design", names: DESIGNS }, Choice { key: "element", names: ELEMENTS }],
    quantities: &[
        quantity("of_block", "cycles between two packets of a block (delta_c)", "delta <= delta_c <= N_b delta"),
        quantity("of_core", "cycles between two packets at a core (delta_k)", "min(S delta_c, K delta)"),
        quantity("add", "cycles to add a packet (A)", "payload / 4 x word / lanes"),
        quantity("service", "cycles that a packet takes a core (tau)", "by design: fanin-models, flare::Processor"),
        quantity("bandwidth", "packets a cycle (Bw)", "min(K / tau, 1 / delta)"),
        quantity("bandwidth_gbps", "Gb/s of elements", "Bw x payload x clock"),
        quantity("capacity_gbps", "Gb/s of elements that the cores could take", "K / tau x payload x clock"),
        quantity("queue", "packets that wait before a core, at most (Q)", "P / S (1 - delta_k / tau), or 0"),
        quantity("packets", "packets in the switch, at most", "(Q + 1) K"),
        quantity("latency", "cycles from a block's first packet to its end (L)", "(P - 1) delta_c + (Q + 1) tau"),
        quantity("buffers_used", "buffers of working memory (R)", "M L Bw / P"),
    ],
    evaluate: |parameters| {
        let &[cores, subset, children, blocks, interarrival, stagger, payload, element, word, design, buffers, clock] = parameters else {
            unreachable!("twelve parameters")
        };
        if subset > cores {
            return Err(ModelError { key: "subset", value: subset, expected: format!("at most as many as cores ({cores})") });
        }
        let add = add_cycles(payload, element, word);
        let of_block = interarrival * (1.0 + stagger * (blocks - 1.0));
        let processor = Processor { cores, subset, children, interarrival, of_block, add, design: design_of(design, buffers) };
        let result = processor.predict();
        let gbps = |packets: f64| packets * payload * 8.0 * clock;
        Ok(vec![
            of_block,
            result.of_core,
            add,
            result.service,
            result.bandwidth,
            gbps(result.bandwidth),
            gbps(cores / result.service),
            result.queue,
            result.packets,
            result.latency,
            result.buffers,
        ])
    },
};

/// `fanin model flare-run`.
pub(crate) const PROCESSOR_RUN: Model = Model {
    name: "flare-run",
    title: "Flare: a switch of many cores, simulated packet by packet, beside the formulas",
    about: "Hosts send a vector of N_b blocks; packets wait for cores, cores spin for locks, blocks hold buffers. predicted_: the formulas of\n\
            fanin model flare for the same, with delta_c = delta where hosts send in the same order and N_b delta (of a window) where they\n\
            are staggered. A block reserves the buffers that it may need in its cluster's memory (l1), a tree one for two children, with its first\n\
            packet; packets of a block without them stay in packet memory, and get them in order: the paper does not say. A tree's leaves stay in packet memory until they are added. Sums are checked: exact is 1 where every child's\n\
            contribution is in every block's sum once.",
    parameters: &[
        CORES,
        whole("cluster", "cores of a cluster, which share a memory", 8.0, 1.0, 4096.0),
        SUBSET,
        whole("scheduling", "who may process a packet: cores of its block's subset, or any", 0.0, 0.0, 1.0),
        number("remote", "how many times longer memory of another cluster takes", 2.0, 1.0, 100.0),
        whole("map", "which subset a block belongs to; skewed: moved by one each time round", 0.0, 0.0, 1.0),
        CHILDREN,
        BLOCKS,
        whole("window", "blocks that may be under way at a time; 0: all", 0.0, 0.0, 1e6),
        number("round_trip", "cycles from a block's end until hosts know of it", 0.0, 0.0, 1e6),
        whole("sending", "order of blocks: the same at all hosts, staggered, staggered inside each window", 0.0, 0.0, 2.0),
        whole("arrivals", "gaps between a host's packets", 0.0, 0.0, 1.0),
        INTERARRIVAL,
        PAYLOAD,
        ELEMENT,
        WORD,
        DESIGN,
        BUFFERS,
        number("l1", "KiB of a cluster's memory for buffers; 0: any number of them", 0.0, 0.0, 1e6),
        number("emit", "cycles to send a block's sum on", 0.0, 0.0, 1e6),
        CLOCK,
        whole("seed", "for all that is random", 1.0, 0.0, 4_294_967_295.0),
    ],
    choices: &[
        Choice { key: "scheduling", names: &["hierarchical", "plain"] },
        Choice { key: "map", names: &["modulo", "skewed"] },
        Choice { key: "sending", names: &["aligned", "staggered", "staggered-in-window"] },
        Choice { key: "arrivals", names: &["regular", "exponential"] },
        Choice { key: "element", names: ELEMENTS },
        Choice { key: "design", names: DESIGNS },
    ],
    quantities: &[
        quantity("cycles", "cycles from the first packet to the last block's end", "simulated"),
        quantity("completed", "share of blocks that have ended: below 1 where hosts wait for each other for ever", "simulated"),
        quantity("exact", "1 where every contribution is in its block's sum once", "simulated"),
        quantity("bandwidth_gbps", "Gb/s of elements", "simulated"),
        quantity("offered_gbps", "Gb/s of elements that the hosts' links carry", "payload x clock / delta"),
        quantity("queue", "packets that wait before a core, at most (Q)", "simulated"),
        quantity("packets", "packets in packet memory, at most", "simulated"),
        quantity("packets_mean", "their mean", "simulated"),
        quantity("latency", "cycles from a block's first packet to its end, at most (L)", "simulated"),
        quantity("latency_mean", "their mean", "simulated"),
        quantity("buffers_used", "buffers of working memory in use, at most (R)", "simulated"),
        quantity("buffers_mean", "their mean", "simulated"),
        quantity("reserved_kib", "KiB that blocks have reserved in one cluster's memory, at most", "simulated"),
        quantity("waited", "share of the packets whose block had to wait for its cluster's memory", "simulated"),
        quantity("memory_kib", "KiB of working memory and packet memory, at most of each", "(R + packets) x payload"),
        quantity("contention", "share of the time of busy cores in which they wait for locks", "simulated"),
        quantity("busy", "share of the time of all cores in which they are busy", "simulated"),
        quantity("predicted_gbps", "Gb/s of elements by the formulas", "Bw x payload x clock"),
        quantity("predicted_queue", "Q by the formulas", "P / S (1 - delta_k / tau), or 0"),
        quantity("predicted_packets", "packets by the formulas", "(Q + 1) K"),
        quantity("predicted_latency", "L by the formulas", "(P - 1) delta_c + (Q + 1) tau"),
        quantity("predicted_buffers", "R by the formulas", "M L Bw / P"),
    ],
    evaluate: |parameters| run_of(parameters),
};

/// Simulates, and puts the formulas beside what comes out.
fn run_of(parameters: &[f64]) -> Result<Vec<f64>, ModelError> {
    let key = |name: &str| parameters[PROCESSOR_RUN.parameter(name).expect("a parameter of the model")];
    let (payload, clock, interarrival) = (key("payload"), key("clock"), key("interarrival"));
    let config = Config {
        cores: key("cores") as u32,
        cluster: key("cluster") as u32,
        subset: key("subset") as u32,
        scheduling: if key("scheduling") == 0.0 { Scheduling::Hierarchical } else { Scheduling::Plain },
        remote: key("remote"),
        map: if key("map") == 0.0 { Map::Modulo } else { Map::Skewed },
        children: key("children") as u32,
        blocks: key("blocks") as u32,
        window: if key("window") == 0.0 { u32::MAX } else { key("window") as u32 },
        round_trip: key("round_trip"),
        sending: [Sending::Aligned, Sending::Staggered, Sending::StaggeredInWindow][key("sending") as usize],
        arrivals: if key("arrivals") == 0.0 { Arrivals::Regular } else { Arrivals::Exponential },
        interarrival,
        design: design_of(key("design"), key("buffers")),
        l1: match key("l1") {
            0.0 => 0,
            kib => ((kib * 1024.0 / payload) as u32).max(1),
        },
        add: add_cycles(payload, key("element"), key("word")),
        emit: key("emit"),
        seed: key("seed") as u64,
    };
    let done = run(&config).map_err(|ConfigError { key, value, expected }| ModelError { key, value, expected })?;
    let predicted = prediction_for(&config);
    let gbps = |packets: f64| packets * payload * 8.0 * clock;
    Ok(vec![
        done.cycles,
        f64::from(done.completed) / f64::from(config.blocks),
        f64::from(u8::from(done.exact)),
        gbps(done.bandwidth),
        gbps(1.0 / interarrival),
        done.queue,
        done.packets as f64,
        done.packets_mean,
        done.latency,
        done.latency_mean,
        done.buffers as f64,
        done.buffers_mean,
        f64::from(done.reserved) * payload / 1024.0,
        done.waited as f64 / (f64::from(config.blocks) * f64::from(config.children)),
        (done.buffers + done.packets) as f64 * payload / 1024.0,
        done.contention,
        done.busy,
        gbps(predicted.bandwidth),
        predicted.queue,
        predicted.packets,
        predicted.latency,
        predicted.buffers,
    ])
}

/// The formulas for what is simulated.
fn prediction_for(config: &Config) -> Prediction {
    // Staggered hosts are as far apart as the blocks that they go round allow: all, or those of a window.
    let apart = match config.sending {
        Sending::Aligned => 1,
        Sending::Staggered => config.blocks,
        Sending::StaggeredInWindow => config.window.min(config.blocks),
    };
    let subset = match config.scheduling {
        Scheduling::Hierarchical => config.subset,
        Scheduling::Plain => config.cores,
    };
    let processor = Processor {
        cores: f64::from(config.cores),
        subset: f64::from(subset),
        children: f64::from(config.children),
        interarrival: config.interarrival,
        of_block: config.interarrival * f64::from(apart),
        add: config.add,
        design: config.design,
    };
    processor.predict()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of section 5: four cores, four hosts, a packet a cycle, four cycles a packet.
    fn example(subset: f64, of_block: f64) -> (f64, f64, f64) {
        let processor = Processor { cores: 4.0, subset, children: 4.0, interarrival: 1.0, of_block, add: 4.0, design: Design::Fixed };
        let prediction = processor.predict();
        (prediction.queue, prediction.packets, prediction.latency)
    }

    #[test]
    fn the_worked_example_is_that_of_figure_5() {
        assert_eq!(example(4.0, 1.0), (0.0, 4.0, 7.0));
        assert_eq!(example(1.0, 1.0), (3.0, 16.0, 19.0));
        assert_eq!(example(1.0, 4.0), (0.0, 4.0, 16.0));
    }

    #[test]
    fn cores_of_a_switch_take_what_the_slides_say_that_fits() {
        let model = crate::model("flare").expect("a model");
        for (element, tbps) in [(0.0, 4.096), (2.0, 8.192), (3.0, 16.384)] {
            let row = model.evaluate(&[512.0, 8.0, 16.0, 64.0, 21.28, 1.0, 1024.0, element, 4.0, 1.0, 4.0, 1.0]).expect("in range");
            assert!((row[model.quantity("capacity_gbps").expect("one")] / 1000.0 - tbps).abs() < 1e-9, "{row:?}");
        }
    }

    #[test]
    fn one_buffer_of_several_is_a_single_one() {
        for of_block in [1.0, 100.0, 5_000.0] {
            let with = |design| {
                let processor = Processor { cores: 32.0, subset: 8.0, children: 16.0, interarrival: 21.28, of_block, add: 1024.0, design };
                processor.predict()
            };
            assert_eq!(with(Design::Single), with(Design::Multiple(1)));
            // Several buffers are for packets that come faster than they can be added; they have to be summed in the end.
            assert_eq!(with(Design::Multiple(4)).service < with(Design::Single).service, of_block < 1024.0);
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let model = crate::model("flare-run").expect("a model");
        let with = |key: &str, value: f64| {
            let mut parameters: Vec<f64> = model.parameters.iter().map(|parameter| parameter.usual).collect();
            parameters[model.parameter(key).expect("one")] = value;
            model.evaluate(&parameters).expect_err("refused").to_string()
        };
        assert_eq!(with("subset", 3.0), "subset = 3: expected a divisor of the cores of a cluster (8)");
        assert_eq!(with("cores", 20.0), "cluster = 8: expected a divisor of the number of cores (20)");
        assert_eq!(with("design", 4.0), "design = 4: expected one of fixed, single, multiple, tree");
    }
}
