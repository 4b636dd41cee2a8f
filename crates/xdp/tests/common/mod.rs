//! A job in the kernel beside the same job's state machine, which is the oracle.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::{Ipv4Addr, SocketAddrV4};

use fanin_core::{
    Address, BlockExponent, Body, DropReason, Duration, Egress, ElementOp, Event, FlowLabel, Ingress, Instant, JobId, NetworkMap, Node,
    NodeId, OpError, Payload, Piece, PortId, Role, TrafficClass, Tx, Via, Wire,
};
use fanin_systems::{AnyHeader, AnyNode, JobSpec, OfferNumbers, build};
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};
use fanin_xdp::XdpSystem;
use fanin_xdp::job::{XdpJob, XdpRank};
use fanin_xdp::layout::OP_REDUCES;
use fanin_xdp::ops::{self, OpTable};

pub const EPOCH: u32 = 0x1234_5678;
pub const JOB: u16 = 77;
pub const PORT: u16 = 7_001;
const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// The loopback device, which is everywhere.
pub const LOOPBACK: u32 = 1;
const HEADERS: usize = 42;
const SWITCH_ETHERNET: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// All that the program has an operator for.
pub fn ops_here() -> Vec<ElementOp> {
    ElementOp::all().filter(|op| ops::table_of_one(*op)[0] & OP_REDUCES != 0).collect()
}

/// What a job is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub system: XdpSystem,
    pub ranks: u32,
    pub pool: u32,
    pub block_bytes: u32,
    pub fixed_point: bool,
    pub first: ElementOp,
}

impl Shape {
    pub fn numbers(&self) -> OfferNumbers {
        OfferNumbers { fixed_point: self.fixed_point, customs: 0 }
    }

    /// The switch's node, as the daemon makes it.
    pub fn node(&self) -> AnyNode<[u8]> {
        let hosts: Vec<NodeId> = (0..self.ranks).map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(JOB),
            hosts: &hosts,
            servers: &[],
            system: self.system.system(),
            op: self.first.into(),
            element_bytes: self.first.dtype.bytes() as u32,
            payload_bytes: self.block_bytes,
            window: self.pool,
            reliable: true,
            rto_initial: Duration::from_ms(100),
            rto_min: Duration::from_ms(5),
            patience: Duration::from_ms(1_000),
            seed: 1,
        };
        let nodes = build::<[u8]>(&spec, &NetworkMap::star(self.ranks)).unwrap();
        let mut node = nodes.others.into_iter().find(|placed| placed.at == Address::switch(NodeId(self.ranks))).unwrap().node;
        assert_eq!(node.offer(self.fixed_point), self.system == XdpSystem::SwitchMl);
        node
    }

    /// What packets name by numbers.
    pub fn ops(&self) -> OpTable {
        match self.system {
            XdpSystem::SwitchMl => ops::table(self.first, self.numbers()),
            _ => ops::table_of_one(self.first),
        }
    }

    /// The first bytes of contributions: their kinds.
    fn contributions(&self) -> &'static [u8] {
        match self.system {
            XdpSystem::SwitchMl => &[1, 5, 7, 8],
            XdpSystem::Tree => &[1],
            _ => &[],
        }
    }

    /// For the kernel.
    pub fn job(&self) -> XdpJob {
        let rank =
            |rank: u32| XdpRank { socket: socket(rank), ifindex: LOOPBACK, ethernet: [ethernet(rank), SWITCH_ETHERNET], from: SWITCH };
        XdpJob {
            job: JOB,
            system: self.system,
            epoch: EPOCH,
            pool: self.pool,
            block_bytes: self.block_bytes,
            canary: None,
            atp: None,
            ops: self.ops(),
            port: PORT,
            ranks: (0..self.ranks).map(rank).collect(),
            late: [Duration::ZERO, Duration::from_ms(10), Duration::from_ms(1_000), Duration::from_ms(100_000)],
        }
    }
}

fn socket(rank: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 9, 1, rank as u8), 9_000 + rank as u16)
}

fn ethernet(rank: u32) -> [u8; 6] {
    [2, 0, 0, 0, 1, rank as u8]
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A frame from a rank, or a stranger, to the switch.
pub fn frame(from: u32, datagram: &[u8]) -> Vec<u8> {
    let socket = socket(from);
    let mut frame = [&SWITCH_ETHERNET[..], &ethernet(from), &[8, 0]].concat();
    let mut ip = [&[0x45, 0][..], &(28 + datagram.len() as u16).to_be_bytes(), &[0, 7, 0x40, 0, 63, 17, 0, 0]].concat();
    ip.extend(socket.ip().octets());
    ip.extend(SWITCH.octets());
    let check = !ones_complement(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend(ip);
    for number in [socket.port(), PORT, 8 + datagram.len() as u16, 0xbeef] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(datagram);
    // Ethernet fills frames up.
    frame.resize(frame.len().max(60), 0xee);
    frame
}

/// Whom a frame of the switch is for, and its datagram; every byte around it is checked.
pub fn unframe(shape: &Shape, frame: &[u8]) -> (u32, Vec<u8>) {
    let rank = (0..shape.ranks).find(|rank| frame[..6] == ethernet(*rank)).expect("it is for a rank");
    assert_eq!(frame[6..14], [&SWITCH_ETHERNET[..], &[8, 0]].concat());
    assert_eq!((frame[14], frame[23]), (0x45, 17));
    assert_eq!(ones_complement(&frame[14..34]), 0xffff, "the IP header's checksum");
    assert_eq!(frame[26..34], [SWITCH.octets(), socket(rank).ip().octets()].concat());
    assert_eq!(frame[34..38], [PORT.to_be_bytes(), socket(rank).port().to_be_bytes()].concat());
    let length = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    assert_eq!((length(16), length(38)), (frame.len() - 14, frame.len() - 34));
    assert_eq!(frame[40..42], [0, 0], "no UDP checksum");
    (rank, frame[HEADERS..].to_vec())
}

/// A contribution as a worker sends it.
pub fn contribution(at: SlotUse, attempt: u8, exponent: Option<i16>, call: CallLabel, payload: &[u8]) -> Vec<u8> {
    let header = SwitchMlHeader::Contribution { at, attempt, exponent: exponent.map(BlockExponent::from_bits), call };
    contribution_of(&header.into(), payload)
}

/// The same of any system.
pub fn contribution_of(header: &AnyHeader, payload: &[u8]) -> Vec<u8> {
    packet(&hop(Role::Worker, Role::Switch, 0), header, payload)
}

pub fn hop(from: Role, to: Role, sequence: u32) -> HopHeader {
    let address = |role| Address { node: NodeId(0), role };
    HopHeader {
        system: 0,
        via: Via::Direct,
        ecn: false,
        neighbour: true,
        class: TrafficClass::Collective,
        source: address(from),
        destination: address(to),
        job: JobId(JOB),
        flow: FlowLabel(0),
        epoch: EPOCH,
        sequence,
        payload_bytes: 0,
    }
}

pub fn packet(hop: &HopHeader, header: &AnyHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HopHeader::NEIGHBOUR_LEN + header.wire_len()];
    header.emit(&mut bytes[HopHeader::NEIGHBOUR_LEN..]);
    // The system's number stands before its header too.
    HopHeader { system: bytes[HopHeader::NEIGHBOUR_LEN], payload_bytes: payload.len() as u16, ..*hop }.emit(&mut bytes);
    bytes.extend(payload);
    seal(&mut bytes);
    bytes
}

/// Makes the checksum right.
pub fn seal(packet: &mut [u8]) {
    let rest = RestCheck::of([&packet[HopHeader::NEIGHBOUR_LEN..]]);
    HopHeader::seal(packet, rest);
}

/// What a datagram is to the switch's driver.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    Contribution(AnyHeader, Vec<u8>),
    Dropped(DropReason),
    /// Not between a worker and its switch, or not a contribution: the program does not take it.
    Other,
}

/// As the driver admits datagrams (`crates/runtime/src/driver.rs`), but for numbers: the state machine needs none, since rounds name packets.
pub fn admit(shape: &Shape, datagram: &[u8]) -> Word {
    let Ok(packet) = HopPacket::new(datagram) else { return Word::Other };
    let header = packet.header();
    let system = shape.system.number();
    let ours = HopHeader {
        system,
        ecn: header.ecn,
        payload_bytes: header.payload_bytes,
        epoch: header.epoch,
        ..hop(Role::Worker, Role::Switch, 0)
    };
    if (HopHeader { sequence: 0, ..header }) != ours || packet.rest().first() != Some(&system) {
        return Word::Other;
    }
    if !packet.rest().get(1).is_some_and(|kind| shape.contributions().contains(kind)) || packet.rest().len() < 9 {
        return Word::Other;
    }
    if packet.verify().is_err() {
        return Word::Dropped(DropReason::Corrupted);
    }
    if header.epoch != EPOCH {
        return Word::Dropped(DropReason::Unproven);
    }
    let Ok((system, length)) = AnyHeader::parse(packet.rest()) else { return Word::Dropped(DropReason::Malformed) };
    match packet.rest()[length..].get(..usize::from(header.payload_bytes)) {
        Some(payload) => Word::Contribution(system, payload.to_vec()),
        None => Word::Dropped(DropReason::Malformed),
    }
}

/// The state machine, with what it sends and why it drops.
pub struct Oracle {
    pub node: AnyNode<[u8]>,
    pub outlet: Outlet,
}

/// What has been sent, framed as the driver does it.
pub struct Outlet {
    pub next: Vec<u32>,
    pub sent: Vec<(u32, Vec<u8>)>,
    pub dropped: Vec<DropReason>,
}

impl Oracle {
    pub fn new(shape: &Shape) -> Self {
        Oracle { node: shape.node(), outlet: Outlet { next: vec![0; shape.ranks as usize], sent: Vec::new(), dropped: Vec::new() } }
    }

    /// Gives a contribution to the node; gives what is sent, by rank, and why packets were dropped.
    pub fn on_contribution(&mut self, from: u32, header: AnyHeader, payload: &[u8]) -> (Vec<(u32, Vec<u8>)>, Vec<DropReason>) {
        let ingress = Ingress { port: PortId(from as u16), source: Address::worker(NodeId(from)), job: JobId(JOB), ecn: false };
        self.node.on_packet(Instant::ZERO, ingress, &header, payload, &mut self.outlet);
        let mut sent = std::mem::take(&mut self.outlet.sent);
        sent.sort();
        (sent, std::mem::take(&mut self.outlet.dropped))
    }
}

impl Outlet {
    fn send_to(&mut self, port: PortId, header: &AnyHeader, body: &[u8]) {
        let rank = u32::from(port.0);
        let next = &mut self.next[rank as usize];
        let bytes = packet(&hop(Role::Switch, Role::Worker, *next), header, body);
        *next = next.wrapping_add(1);
        self.sent.push((rank, bytes));
    }
}

impl Tx<AnyHeader, [u8]> for Outlet {
    fn send(&mut self, to: Egress<'_>, header: &AnyHeader, body: Body<'_, [u8]>) {
        let body = match body {
            Body::Empty => &[][..],
            Body::Borrowed(bytes) => bytes,
            Body::Acc(acc) => acc.as_bytes(),
            other => panic!("{other:?}: a switch has no vectors"),
        };
        match to {
            Egress::Port(port) => self.send_to(port, header, body),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.send_to(port, header, body)),
            Egress::Route(_) => panic!("a switch answers its ports"),
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        if let Event::Dropped(reason) = event {
            self.dropped.push(reason);
        }
    }

    fn contribute(&mut self, _: Piece, _: &mut <[u8] as Payload>::Acc, _: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _: Piece, _: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _: Piece, _: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}
