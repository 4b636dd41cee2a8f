//! Little's law: what a switch has in use on average is the rate of blocks times the time that a block stays. The three are measured in three
//! ways: the memory that the simulator counts, the goodput of the workers, and the life of each single descriptor, told by its block.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fanin_check::{Demand, JobRecipe, Numbers, Recipe, run};
use fanin_core::{
    Body, Census, Collective, DType, Duration, Egress, ElementOp, Event, Ingress, Instant, JobId, JobNodes, Node, NodeId, OpError,
    OperationId, Operator, Outcome, PacketKind, Piece, Placed, Tx, Worker,
};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::metrics::Ended;
use fanin_sim::routing::Balancer;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Simulation};
use fanin_systems::{AnyHeader, AnyNode, CanaryParameters, System, UNLIMITED, build};
use fanin_wire::canary::{CanaryHeader, CanaryId};

const BLOCK_BYTES: u64 = 1_024;
const HOSTS_PER_LEAF: u32 = 8;
const LEAVES: u32 = 4;
const RATE_GBPS: u64 = 100;
const LATENCY: Duration = Duration::from_ns(300);
const TIMEOUT: Duration = Duration::from_us(1);

/// When descriptors were taken and freed.
#[derive(Default)]
struct Lives {
    /// By switch and block: when it was taken.
    open: BTreeMap<(NodeId, CanaryId), Instant>,
    /// By switch: descriptors that have come and gone, and how long they lived together.
    ended: BTreeMap<NodeId, (u64, u128)>,
}

/// A node that tells of its descriptors, block by block.
#[derive(Clone)]
struct Watched {
    node: AnyNode<Census>,
    at: NodeId,
    lives: Rc<RefCell<Lives>>,
}

/// Sees what the node sends and notes: a descriptor is taken for the block that came, and freed for the block whose sum was sent last.
struct Watching<'a, T> {
    tx: &'a mut T,
    at: NodeId,
    now: Instant,
    lives: &'a RefCell<Lives>,
    came: Option<CanaryId>,
    sent: Option<CanaryId>,
}

impl<T: Tx<AnyHeader, Census>> Tx<AnyHeader, Census> for Watching<'_, T> {
    fn send(&mut self, to: Egress<'_>, header: &AnyHeader, body: Body<'_, Census>) {
        if let AnyHeader::Canary(CanaryHeader::Broadcast { id, .. }) = header {
            self.sent = Some(*id);
        }
        self.tx.send(to, header, body);
    }

    fn room(&mut self, to: Egress<'_>) -> bool {
        self.tx.room(to)
    }

    fn note(&mut self, event: Event) {
        let mut lives = self.lives.borrow_mut();
        match event {
            Event::SlotTaken { .. } => {
                let before = lives.open.insert((self.at, self.came.expect("a packet takes a descriptor")), self.now);
                assert_eq!(before, None, "one descriptor a block");
            }
            Event::SlotFreed { .. } => {
                let from = lives.open.remove(&(self.at, self.sent.expect("a sum frees a descriptor"))).expect("it was taken");
                let (count, total_ps) = lives.ended.entry(self.at).or_default();
                (*count, *total_ps) = (*count + 1, *total_ps + u128::from(self.now.since(from).as_ps()));
            }
            _ => {}
        }
        self.tx.note(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut Census, first: bool) -> Result<(), OpError> {
        self.tx.contribute(piece, accumulator, first)
    }

    fn fold(&mut self, piece: Piece, payload: &Census) -> Result<(), OpError> {
        self.tx.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, Census>) -> Result<(), OpError> {
        self.tx.deliver(piece, body)
    }
}

impl Watched {
    fn call<T: Tx<AnyHeader, Census>>(
        &mut self,
        now: Instant,
        came: Option<CanaryId>,
        tx: &mut T,
        handler: impl FnOnce(&mut AnyNode<Census>, &mut Watching<'_, T>),
    ) {
        handler(&mut self.node, &mut Watching { tx, at: self.at, now, lives: &self.lives, came, sent: None });
    }
}

impl Node<Census> for Watched {
    type Header = AnyHeader;

    fn on_packet<T: Tx<AnyHeader, Census>>(&mut self, now: Instant, from: Ingress, header: &AnyHeader, payload: &Census, tx: &mut T) {
        let came = if let AnyHeader::Canary(header) = header { Some(header.id()) } else { None };
        self.call(now, came, tx, |node, tx| node.on_packet(now, from, header, payload, tx));
    }

    fn on_timeout<T: Tx<AnyHeader, Census>>(&mut self, now: Instant, tx: &mut T) {
        self.call(now, None, tx, |node, tx| node.on_timeout(now, tx));
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.node.next_timeout()
    }

    fn on_tx_ready<T: Tx<AnyHeader, Census>>(&mut self, now: Instant, tx: &mut T) {
        self.call(now, None, tx, |node, tx| node.on_tx_ready(now, tx));
    }
}

impl Worker<Census> for Watched {
    fn submit<T: Tx<AnyHeader, Census>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        self.call(now, None, tx, |node, tx| node.submit(now, collective, tx));
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.node.poll()
    }

    fn cancel<T: Tx<AnyHeader, Census>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        self.call(now, None, tx, |node, tx| node.cancel(now, operation, tx));
    }
}

/// Canary's allreduce of so many bytes among hosts that are spread over all leaves, on a network that loses nothing and is otherwise idle.
fn recipe(window: u32, workers: u32, bytes: u64) -> Recipe {
    let link = LinkSpeed { bits_per_second: RATE_GBPS * 1_000_000_000, latency: LATENCY };
    let shape = Shape::FatTree2 {
        leaves: LEAVES,
        hosts_per_leaf: HOSTS_PER_LEAF,
        spines: 4,
        parallel_links: 1,
        host_link: link,
        fabric_link: link,
    };
    let each = workers / LEAVES;
    let hosts = (0..LEAVES).flat_map(|leaf| (0..each).map(move |host| NodeId(leaf * HOSTS_PER_LEAF + host))).collect();
    let job = JobRecipe {
        servers: Vec::new(),
        hosts,
        system: System::canary(),
        op: ElementOp { dtype: DType::F32, operator: Operator::Sum },
        numbers: Numbers::Whole,
        payload_bytes: BLOCK_BYTES as u32,
        window,
        reliable: false,
        rto_initial: Duration::ZERO,
        rto_min: Duration::ZERO,
        patience: Duration::from_ms(100),
        elements: vec![bytes / 4],
        kinds: Vec::new(),
        start: vec![Instant::ZERO; workers as usize],
        noise_probability: 0.0,
        noise_delay: Duration::ZERO.into(),
        seed: 1,
    };
    let network = NetworkConfig {
        shape,
        queue_bytes: 0,
        lossless: Some(LosslessConfig {
            model: SwitchModel::InputQueued,
            input_bytes: 16 << 10,
            output_bytes: 16 << 10,
            arbitration: Arbitration::default(),
            made_packets: MadePackets::default(),
            channels: 1,
        }),
        ecn_mark_bytes: u64::MAX,
        nic_queue_bytes: 16 << 10,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: Balancer::Adaptive { threshold: 0.5 },
        background_balancer: Balancer::Ecmp,
        trimming: None,
    };
    let (faults, time_limit, demand) = (FaultPlan::default(), Duration::from_ms(100), Demand::MustComplete);
    Recipe {
        seed: 1,
        network,
        forwarding: Vec::new(),
        pipeline: None,
        jobs: vec![job],
        pods: Vec::new(),
        traffic: Vec::new(),
        limits: Vec::new(),
        faults,
        time_limit,
        drain: false,
        demand,
    }
}

/// Runs it, watched.
fn watched(recipe: &Recipe) -> (RunResult, Lives) {
    let topology = recipe.topology().expect("a fat tree");
    let nodes = build::<Census>(&recipe.jobs[0].spec(JobId(0), ()), &topology.map).expect("a job that fits");
    let lives = Rc::new(RefCell::new(Lives::default()));
    let watch = |placed: Placed<AnyNode<Census>>| Placed {
        at: placed.at,
        node: Watched { node: placed.node, at: placed.at.node, lives: Rc::clone(&lives) },
    };
    let nodes = JobNodes { workers: nodes.workers.into_iter().map(watch).collect(), others: nodes.others.into_iter().map(watch).collect() };
    let mut simulation = Simulation::new(topology, recipe.scenario(), vec![nodes], &[()]).expect("a scenario that fits");
    simulation.sample_memory(Duration::from_ns(250));
    let result = simulation.run();
    assert_eq!((result.ended, result.verdict.wrong), (Ended::JobsDone, 0));
    (result, lives.take())
}

/// What leaves have in use on average, after the law was held against each of them and against samples of all switches together.
fn leaf_bytes_mean(window: u32, workers: u32, bytes: u64) -> f64 {
    let recipe = recipe(window, workers, bytes);
    let (result, lives) = watched(&recipe);
    let seconds = result.end.as_ps() as f64 / 1e12;
    // As workers see it: blocks of which all have the sum, over time.
    let blocks_per_second = result.jobs[0].goodput_gbps(0).expect("it completed") * 1e9 / 8.0 / BLOCK_BYTES as f64;
    let close = |measured: f64, expected: f64, what: &str| {
        let ratio = measured / expected;
        assert!((0.95..1.05).contains(&ratio), "{what}: {measured:.0} bytes, {expected:.0} expected ({ratio:.3})");
    };
    let first = LEAVES * HOSTS_PER_LEAF;
    let (mut sum, mut expected_of_all) = (0.0, 0.0);
    for (index, slots) in result.slots.iter().enumerate() {
        let (count, total_ps) = lives.ended.get(&NodeId(first + index as u32)).copied().unwrap_or_default();
        if count == 0 {
            continue;
        }
        let life_seconds = total_ps as f64 / count as f64 / 1e12;
        expected_of_all += count as f64 / seconds * life_seconds * BLOCK_BYTES as f64;
        if index < LEAVES as usize {
            close(slots.bytes_mean(), blocks_per_second * life_seconds * BLOCK_BYTES as f64, &format!("leaf {index}"));
            sum += slots.bytes_mean();
        }
        // What the simulator makes of the events of all slots together is what their single lives come to.
        let open = slots.taken - count;
        assert!(open < 3 && slots.held_ps().abs_diff(total_ps) <= u128::from(open) * 20_000_000, "{open} are still in use");
    }
    let samples = result.memory.iter().map(|sample| sample.bytes_total as f64);
    close(samples.sum::<f64>() / result.memory.len() as f64, expected_of_all, "samples of all switches");
    let mean = sum / f64::from(LEAVES);
    // `canary 6`: b (2d (l + t) + r), of 4 hops and a leader that takes no time.
    let model = RATE_GBPS as f64 / 8.0 * (8 * (LATENCY.as_ps() + TIMEOUT.as_ps())) as f64 / 1e3;
    let window = if window == UNLIMITED { "unlimited".into() } else { window.to_string() };
    println!("window {window}, {workers} workers, {bytes} bytes: {mean:.0} bytes at a leaf, {:.2} of the paper's model", mean / model);
    mean
}

/// The least and the most over two lengths of the vector and two numbers of workers.
fn range_of_means(window: u32) -> (f64, f64) {
    let runs = [(16, 512 << 10), (16, 2 << 20), (32, 512 << 10), (32, 2 << 20)];
    let means = runs.map(|(workers, bytes)| leaf_bytes_mean(window, workers, bytes));
    means.iter().fold((f64::INFINITY, 0.0), |(least, most), mean| (mean.min(least), mean.max(most)))
}

#[test]
fn what_leaves_hold_is_the_rate_of_blocks_times_their_life() {
    for window in [162, UNLIMITED] {
        let (least, most) = range_of_means(window);
        assert!(least > 50_000.0 && most < 2_000_000.0, "{least:.0} to {most:.0}");
    }
}

/// With a window that is shorter than the way to the leader and back, neither the vector's length nor the number of workers matters. With a
/// longer one they do: a leader's link carries the sums of all other blocks at line rate already, and its own block's packets as well, so
/// queues grow; by less, the fewer blocks each leads.
#[test]
fn a_short_window_makes_memory_independent_of_length_and_workers() {
    let (least, most) = range_of_means(32);
    assert!(most / least < 1.1, "{least:.0} to {most:.0}");
}

/// With losses: the goodput of a job of 16 workers in Gb/s, and what a leaf holds on average, in bytes.
fn with_lost_sums(loss: f64, lifetime: Duration) -> (f64, f64) {
    let mut recipe = recipe(32, 16, 8 << 20);
    recipe.network.lossless = None;
    recipe.network.queue_bytes = 1 << 20;
    let job = &mut recipe.jobs[0];
    job.system = System::Canary(CanaryParameters { lifetime_ps: lifetime.as_ps(), ..CanaryParameters::default() });
    (job.reliable, job.rto_initial, job.rto_min) = (true, Duration::from_us(40), Duration::from_us(10));
    recipe.faults.links.push(LinkFault {
        links: LinkSelector::All,
        kinds: KindSet::of(&[PacketKind::Aggregate]),
        loss,
        corruption: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        delay_max: Duration::ZERO,
    });
    let result = run::<Census>(&recipe, |_| {}).expect("it runs");
    assert_eq!((result.ended, result.verdict.wrong), (Ended::JobsDone, 0));
    let leaves = result.slots.iter().take(LEAVES as usize).map(|slots| slots.bytes_mean());
    (result.jobs[0].goodput_gbps(0).expect("it completed"), leaves.sum::<f64>() / f64::from(LEAVES))
}

/// A descriptor whose sum is lost stays for its lifetime: the model of memory without losses, plus b p T (`canary 6`, decision 9 of the
/// specifications), where p is how probable it is that the sum is lost before it comes to the leaf.
#[test]
fn what_losses_leave_behind_is_bounded_by_the_lifetime_of_descriptors() {
    let loss = 0.01;
    let (_, idle_bytes) = with_lost_sums(0.0, Duration::from_ms(1));
    for lifetime_us in [200, 400] {
        let lifetime = Duration::from_us(lifetime_us);
        let (goodput_gbps, bytes) = with_lost_sums(loss, lifetime);
        // From the leader to its leaf, a spine and the leaf: three links; at the leader's own leaf, a quarter of all blocks, one.
        let lost = 0.75 * (1.0 - (1.0_f64 - loss).powi(3)) + 0.25 * loss;
        let left_bytes = goodput_gbps * 1e9 / 8.0 * lost * lifetime.as_ps() as f64 / 1e12;
        let ratio = (bytes - idle_bytes) / left_bytes;
        println!(
            "lifetime {lifetime}: {bytes:.0} bytes at a leaf, {idle_bytes:.0} without losses, {left_bytes:.0} expected more: {ratio:.2}"
        );
        // At most about 1, by the model; at least so much that it is seen at all.
        assert!((0.3..1.3).contains(&ratio), "{bytes:.0} bytes, {idle_bytes:.0} without losses, {left_bytes:.0} expected more");
    }
}
