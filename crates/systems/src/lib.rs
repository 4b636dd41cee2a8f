//! The registry: the one place that knows which systems exist. A job's configuration goes in, its nodes come out; a driver runs
//! [`AnyNode`]s and needs no list of its own, so one network, or one daemon, mixes jobs of different systems.
//!
//! ## A system is one folder, and one line here
//! What belongs to a system stands in modules of its name: nodes in `fanin-protocols`, header and layout in `fanin-wire`, and here its
//! parameters, how its nodes are laid on a network, and what is particular to it ([`Facts`]). The list below makes the rest: [`System`],
//! [`AnyHeader`], [`AnyNode`] and [`LAYOUTS`], by enum dispatch, so that a packet's way to its node is known when Fanin is compiled.
//!
//! A crate from elsewhere brings a system along without a line here: see [`OwnSystem`].
//!
//! A line names the system and its parameters; its number in hop headers, which stays for ever; its name in plans; its module; whose packets it
//! has, with their header where they are its own; its workers; and its switches and servers. The order is that in which people are shown them.
#![forbid(unsafe_code)]

/// Calls a macro with the list of all systems, and with that of those from elsewhere, which have one place together.
macro_rules! systems {
    ($each:ident with own) => {
        systems! { @list $each Own(OwnParameters) = 255 "own" in own, packets Own(OwnHeader), workers [OwnNode], others []; }
    };
    ($each:ident) => {
        systems! { @list $each }
    };
    (@list $each:ident $($own:tt)*) => {
        $each! {
            Ring(RingParameters) = 2 "ring" in ring, packets Ring(RingHeader), workers [RingWorker], others [];
            Tree(TreeParameters) = 1 "tree" in tree, packets Tree(TreeHeader), workers [TreeWorker], others [TreeSwitch];
            Canary(CanaryParameters) = 3 "canary" in canary, packets Canary(CanaryHeader), workers [CanaryWorker], others [CanarySwitch, CanarySharedSwitch];
            SwitchMl(SwitchMlParameters) = 4 "switchml" in switchml, packets SwitchMl(SwitchMlHeader), workers [SwitchMlWorker], others [SwitchMlSwitch];
            Atp(AtpParameters) = 5 "atp" in atp, packets Atp(AtpHeader), workers [AtpWorker], others [AtpServer, AtpSwitch];
            A2tp(A2tpParameters) = 6 "a2tp" in a2tp, packets Atp, workers [A2tpWorker], others [A2tpServer];
            Panama(PanamaParameters) = 8 "panama" in panama, packets Panama(PanamaHeader), workers [PanamaWorker], others [PanamaSwitch];
            Sharp(SharpParameters) = 9 "sharp" in sharp, packets Sharp(SharpHeader), workers [SharpWorker], others [SharpSwitch];
            NetReduce(NetReduceParameters) = 10 "netreduce" in netreduce, packets NetReduce(NetReduceHeader), workers [NetReduceWorker], others [NetReduceSwitch];
            Machines(MachinesParameters) = 11 "machines" in machines, packets NetReduce, workers [MachinesWorker], others [NetReduceRings];
            Rina(RinaParameters) = 12 "rina" in rina, packets Rina(RinaHeader), workers [RinaWorker], others [RinaSwitch];
            Ps(PsParameters) = 13 "ps" in ps, packets Ps(PsHeader), workers [PsWorker], others [PsServer];
            Flare(FlareParameters) = 14 "flare" in flare, packets Flare(FlareHeader), workers [FlareWorker], others [FlareSwitch];
            Doubling(DoublingParameters) = 15 "doubling" in doubling, packets Doubling(DoublingHeader), workers [DoublingWorker], others [];
            Exchange(ExchangeParameters) = 16 "exchange" in exchange, packets Exchange(ExchangeHeader), workers [ExchangeWorker], others [];
            $($own)*
        }
    };
}

mod a2tp;
mod aggregation;
mod any;
mod atp;
mod build;
mod campaign;
mod canary;
mod collectives;
mod config;
mod congestion;
pub mod demand;
mod doubling;
mod draw;
mod exchange;
mod facts;
mod flare;
mod formats;
mod kept;
pub mod layout;
mod machines;
mod memory;
mod netreduce;
mod order;
mod own;
mod panama;
mod particulars;
mod places;
pub mod pods;
mod ps;
mod rina;
mod ring;
mod sharp;
mod sparse;
mod switchml;
mod system;
mod tree;
mod trees;

/// What systems' modules give to everybody: parameters, and the rules that these choose among.
macro_rules! parameters {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        $(pub use $module::*;)*
    };
}

systems!(parameters);

pub use aggregation::{Aggregation, FIXED_EXPONENT, SafetyNets};
pub use any::{AnyHeader, AnyNode};
pub use build::{build, check_operator, shared};
pub use campaign::{Campaign, DrawnJob, First, JobSize, Load};
pub use canary::CANARY_HASH_KEY;
pub use collectives::check_collective;
pub use config::{BuildError, JobSpec, RingOrder, StepParameters, UNLIMITED};
pub use congestion::{CongestionParameters, CongestionRule};
pub use draw::Draw;
pub use facts::{AggregatorUse, Facts, KeyUse, KeysOf, LongestWay, UNRELIABLE, Unit, key_of, unit_of};
pub use formats::{LAYOUTS, block_of, layout_of};
pub use kept::KeptSlot;
pub use order::SumOrder;
pub use own::{OwnHeader, OwnNode, OwnParameters, OwnSystem, Rack, header, register};
pub use sparse::Picks;
pub use system::System;
