//! ATP with real integers (`a2tp 5.8`, P8): what fits fixed point at every worker never overflows the 32 bits of a sum, at the very bound
//! neither, and what does not fit at one worker goes as floats from all, by way of the server.

use std::collections::{BTreeSet, VecDeque};

use fanin_core::{
    Address, BlockExponent, Body, Collective, Duration, Egress, ElementOp, Event, FixedPoint, FlowLabel, Ingress, Instant, JobId, Node,
    NodeId, OpError, OperationId, Payload, Piece, PortId, Rank, Role, Suspect, Tx, Via, Worker,
};
use fanin_protocols::atp::{AtpRounds, AtpServer, AtpSwitch, AtpWindow, AtpWindowConfig, AtpWorker};
use fanin_protocols::shared::aggregation::{
    FixedScale, JobAtSwitch, Members, Nets, ServerAtSwitch, ServerConfig, SwitchConfig, WorkerConfig,
};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::atp::{AtpFlags, AtpHeader};

const JOB: JobId = JobId(3);
const SWITCH: NodeId = NodeId(100);
const SERVER: Address = Address { node: NodeId(90), role: Role::Server };
const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(20));
const BLOCK: usize = 4;
const WINDOW: u32 = 4;
/// Elements are below 2^8.
const EXPONENT: i16 = 8;

/// Who gets a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Worker(usize),
    Switch,
    Server,
}

struct Packet {
    to: To,
    from: Ingress,
    header: AtpHeader,
    payload: Vec<u8>,
}

/// What a node is lent. A worker has vectors.
struct Lent<'a> {
    me: To,
    op: ElementOp,
    workers: usize,
    input: &'a [f32],
    output: &'a mut [f32],
    point: FixedPoint,
    out: &'a mut VecDeque<Packet>,
    /// Fragments that went as floats.
    floats: &'a mut BTreeSet<u32>,
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

impl Lent<'_> {
    fn range(piece: Piece) -> std::ops::Range<usize> {
        piece.start as usize..piece.end() as usize
    }

    fn put(&mut self, to: Egress<'_>, header: &AtpHeader, payload: Vec<u8>) {
        if let AtpHeader::Gradient { at, flags, .. } = header
            && flags.has(AtpFlags::FLOAT)
        {
            self.floats.insert(at.seq);
        }
        let (port, source) = match self.me {
            To::Worker(rank) => (PortId(rank as u16), Address::worker(NodeId(rank as u32))),
            To::Switch => (PortId(0), Address::switch(SWITCH)),
            To::Server => (PortId(99), SERVER),
        };
        let from = Ingress { port, source, job: JOB, ecn: false };
        let arrivals: Vec<To> = match to {
            Egress::Port(port) => vec![To::Worker(port.index())],
            Egress::Ports(ports) => ports.iter().map(|port| To::Worker(port.index())).collect(),
            Egress::Route(route) if route.to == SERVER && route.via == Via::Aggregators && self.me != To::Switch => vec![To::Switch],
            Egress::Route(route) if route.to == SERVER => vec![To::Server],
            Egress::Route(route) if route.to.node == SWITCH => vec![To::Switch],
            Egress::Route(route) => vec![To::Worker(route.to.node.index())],
        };
        assert!(arrivals.iter().all(|to| !matches!(to, To::Worker(rank) if *rank >= self.workers)));
        self.out.extend(arrivals.into_iter().map(|to| Packet { to, from, header: *header, payload: payload.clone() }));
    }
}

impl Tx<AtpHeader, [u8]> for Lent<'_> {
    fn send(&mut self, to: Egress<'_>, header: &AtpHeader, body: Body<'_, [u8]>) {
        let payload = match body {
            Body::Empty => Vec::new(),
            Body::Borrowed(payload) => payload.to_vec(),
            Body::Acc(acc) => <[u8] as Payload>::own_acc(acc, &self.op.into()).to_vec(),
            Body::Input(piece) => bytes_of(&self.input[Lent::range(piece)]),
            Body::Output(_) => unreachable!("ATP sends nothing of its output"),
        };
        self.put(to, header, payload);
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_) | Event::Failed(_)), "{event:?}");
    }

    fn contribute(&mut self, _piece: Piece, _accumulator: &mut <[u8] as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        Err(OpError::Unsupported)
    }

    fn fold(&mut self, _piece: Piece, _payload: &[u8]) -> Result<(), OpError> {
        Err(OpError::Unsupported)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, [u8]>) -> Result<(), OpError> {
        let Body::Borrowed(payload) = body else { return Err(OpError::Unsupported) };
        for (value, bytes) in self.output[Lent::range(piece)].iter_mut().zip(payload.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        BlockExponent::of(&bytes_of(&self.input[Lent::range(piece)]))
    }

    fn send_fixed(&mut self, to: Egress<'_>, header: &AtpHeader, piece: Piece, exponent: BlockExponent) {
        let block = bytes_of(&self.input[Lent::range(piece)]);
        let mut integers = vec![0; block.len()];
        self.point.quantise(exponent, &block, &mut integers);
        self.put(to, header, integers);
    }

    fn deliver_fixed(&mut self, piece: Piece, payload: &[u8], exponent: BlockExponent) -> Result<(), OpError> {
        let mut block = vec![0; payload.len()];
        self.point.dequantise(exponent, payload, &mut block);
        self.deliver(piece, Body::Borrowed(&block))
    }
}

struct Rack {
    workers: Vec<AtpWorker<[u8]>>,
    switch: AtpSwitch<[u8]>,
    server: AtpServer<[u8]>,
}

impl Rack {
    fn new(count: usize) -> Rack {
        let block_bytes = 4 * BLOCK as u32;
        let worker = |rank: usize| {
            let config = WorkerConfig {
                job: JOB,
                rank: Rank(rank as u32),
                bit: Rank(rank as u32),
                workers: count as u32,
                op: ElementOp::F32_SUM.into(),
                element_bytes: 4,
                block_elements: BLOCK as u32,
                window: WINDOW,
                aggregators: 16,
                fan_in: [count as u8; 2],
                number: 0,
                servers: 1,
                server: SERVER,
                suspect: Suspect::Switch(SWITCH),
                nets: Nets::All,
                reliability: LOSSY,
                flow: FlowLabel(0),
                fixed_point: Some(FixedScale { exponent: EXPONENT, too_large: 0 }),
            };
            AtpWorker::new(config, AtpWindow::new(AtpWindowConfig { window: WINDOW, initial: WINDOW, increase: Real::new(1.0) }))
        };
        let job = JobAtSwitch {
            job: JOB,
            op: ElementOp::I32_SUM.into(),
            block_bytes,
            size: count as u32,
            flow: FlowLabel(0),
            shares_collisions: false,
            servers: vec![ServerAtSwitch {
                number: 0,
                workers: (0..count).map(|rank| (PortId(rank as u16), Rank(rank as u32))).collect(),
                elsewhere: Vec::new(),
                server: SERVER,
                server_switch: SWITCH,
                above: SERVER,
            }],
        };
        let server = ServerConfig {
            job: JOB,
            workers: (0..count as u32).map(|host| Address::worker(NodeId(host))).collect(),
            bits: (0..count as u32).map(Rank).collect(),
            switches: Vec::new(),
            number: 0,
            at: SERVER,
            below: vec![(Address::switch(SWITCH), Members::first(count as u32))],
            op: ElementOp::F32_SUM.into(),
            fixed_op: ElementOp::I32_SUM.into(),
            block_bytes,
            window: WINDOW,
            aggregators: 16,
            nets: Nets::All,
            reliability: LOSSY,
            flow: FlowLabel(0),
        };
        let reclaim_after = Duration::from_ms(100);
        let switch =
            SwitchConfig { node: SWITCH, aggregators: 16, reclaim_after, largest: ElementOp::I32_SUM.into(), block_bytes, jobs: vec![job] };
        Rack {
            workers: (0..count).map(worker).collect(),
            switch: AtpSwitch::new(switch),
            server: AtpServer::new(server, AtpRounds::new(WINDOW)),
        }
    }

    /// Sums one vector of each worker. Gives what each got, and the fragments that went as floats.
    fn sum(mut self, inputs: &[Vec<f32>]) -> (Vec<Vec<f32>>, BTreeSet<u32>) {
        let (count, length) = (inputs.len(), inputs[0].len());
        let mut outputs = vec![vec![f32::NAN; length]; count];
        let (mut queue, mut floats, mut now) = (VecDeque::new(), BTreeSet::new(), Instant::ZERO);
        let point = FixedPoint::new(count as u32, false);
        let no_vector: [f32; 0] = [];
        macro_rules! lent {
            ($me:expr, $op:expr, $input:expr, $output:expr) => {
                &mut Lent { me: $me, op: $op, workers: count, input: $input, output: $output, point, out: &mut queue, floats: &mut floats }
            };
        }
        let collective = Collective::allreduce(OperationId(0), length as u64);
        for (rank, worker) in self.workers.iter_mut().enumerate() {
            worker.submit(now, collective, lent!(To::Worker(rank), ElementOp::F32_SUM, &inputs[rank], &mut outputs[rank]));
        }
        let mut done = vec![false; count];
        for _ in 0..100_000 {
            if let Some(Packet { to, from, header, payload }) = queue.pop_front() {
                match to {
                    To::Worker(rank) => {
                        let tx = lent!(to, ElementOp::F32_SUM, &inputs[rank], &mut outputs[rank]);
                        self.workers[rank].on_packet(now, from, &header, &payload, tx);
                    }
                    To::Switch => self.switch.on_packet(now, from, &header, &payload, lent!(to, ElementOp::I32_SUM, &no_vector, &mut [])),
                    To::Server => self.server.on_packet(now, from, &header, &payload, lent!(to, ElementOp::F32_SUM, &no_vector, &mut [])),
                }
            } else {
                for (rank, worker) in self.workers.iter_mut().enumerate() {
                    done[rank] |= worker.poll().is_some_and(|outcome| outcome.result.is_ok());
                }
                if done.iter().all(|done| *done) {
                    return (outputs, floats);
                }
                now += Duration::from_us(100);
                for (rank, worker) in self.workers.iter_mut().enumerate() {
                    worker.on_timeout(now, lent!(To::Worker(rank), ElementOp::F32_SUM, &inputs[rank], &mut outputs[rank]));
                }
                self.server.on_timeout(now, lent!(To::Server, ElementOp::F32_SUM, &no_vector, &mut []));
            }
        }
        panic!("it does not end");
    }
}

/// The largest that fits: just below 2^8.
const BOUND: f32 = 255.999_98;

/// Fragments that fit, at the bound, beyond it at one worker, far beyond it, zero.
fn input(rank: usize) -> Vec<f32> {
    let small = [0.5 + rank as f32, -3.25, 100.0, 0.001];
    let bound = [BOUND, -BOUND, BOUND, -BOUND];
    let beyond = if rank == 1 { [256.0, 1.0, -1.0, 2.0] } else { [BOUND, 1.0, 1.0, 2.0] };
    let far = if rank == 0 { [3.0e30, -3.0e30, 7.0, 0.0] } else { [1.0, 2.0, 3.0, 4.0] };
    [small, bound, beyond, far, [0.0; 4], bound].concat()
}

#[test]
fn what_fits_does_not_overflow_and_what_does_not_goes_as_floats() {
    // Powers of two leave no room between the largest sum and 2^31; 64 workers are the most that there are.
    for count in [2, 3, 4, 64] {
        let inputs: Vec<Vec<f32>> = (0..count).map(input).collect();
        let (outputs, floats) = Rack::new(count).sum(&inputs);
        assert_eq!(floats.into_iter().collect::<Vec<_>>(), [2, 3], "{count} workers: only what does not fit at some worker");
        let bound = FixedPoint::new(count as u32, false).error_bound(BlockExponent::from_bits(EXPONENT));
        for (place, got) in outputs[0].iter().enumerate() {
            let sum: f64 = inputs.iter().map(|vector| f64::from(vector[place])).sum();
            // The result is rounded to binary32 once, or with each sum of floats.
            let rounding = inputs.iter().map(|vector| f64::from(vector[place]).abs()).sum::<f64>() * count as f64 / f64::from(1 << 24);
            assert!((f64::from(*got) - sum).abs() <= bound + rounding, "{count} workers, element {place}: {got} for {sum}");
        }
        assert!(outputs.iter().all(|output| bytes_of(output) == bytes_of(&outputs[0])), "all workers have the same bits");
    }
}

#[test]
fn what_is_not_finite_is_not_lost_in_integers() {
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| vec![if rank == 2 { f32::INFINITY } else { 1.0 }, 1.0, f32::MAX, 1.0]).collect();
    let (outputs, floats) = Rack::new(4).sum(&inputs);
    assert_eq!(floats.len(), 1);
    assert_eq!((outputs[0][0], outputs[0][1], outputs[0][2]), (f32::INFINITY, 4.0, f32::INFINITY));
}
