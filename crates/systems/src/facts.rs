//! What is particular to a system, told by its parameters. Each system says it in its own file; what it does not say is as most systems
//! have it.

use std::fmt::Debug;

use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, JobId, JobNodes, NetworkMap, NodeId, Payload, SharedNode};

use crate::aggregation::Aggregation;
use crate::any::AnyNode;
use crate::campaign::{Campaign, First, JobSize, Load};
use crate::config::{BuildError, JobSpec, StepParameters};

/// A key of a job, whether something uses it, and what it lacks otherwise.
pub type KeyUse = (&'static str, bool, &'static str);

/// What a job has of the aggregators of every switch, where a network says how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregatorUse {
    /// All of them, with other jobs of its system. The job's keys that would say the same.
    Shares(&'static [&'static str]),
    /// An equal part of what there are, as the slots of its pool, each of which counts as often as it has versions.
    Pool(&'static [&'static str]),
    /// An equal part of what there are, as an array of its own.
    Array(&'static [&'static str]),
}

impl AggregatorUse {
    /// Keys of a job that say the same.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            AggregatorUse::Shares(keys) | AggregatorUse::Pool(keys) | AggregatorUse::Array(keys) => keys,
        }
    }
}

/// The longest of the shortest ways between two hosts of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LongestWay {
    /// How many links a packet passes.
    pub links: u32,
    /// The delays of these links together, in ps.
    pub delay_ps: u64,
}

/// What a parameter is in plans, where values have units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// As it is.
    Plain,
    /// A time; here in ps.
    Time,
    /// A number of bytes, of which no more than so many count.
    Bytes(u64),
    /// A rate above 0; here in bits per second.
    Rate,
    /// A rate, or 0 for none.
    RateOrNone,
    /// A share, 0 to 1.
    Fraction,
}

/// What is particular to a system, told by its parameters.
pub trait Facts: Debug {
    /// The key that a parameter has in plans, where one key may be several parameters: its name without its unit.
    fn key_of<'a>(&self, field: &'a str) -> &'a str {
        key_of(field)
    }

    /// What a parameter is in plans: its name ends with its unit, and fractions are what has none and is no whole number.
    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        unit_of(field, is_float)
    }

    /// How many servers a job has where its configuration does not say; 0 for systems that have none.
    fn servers(&self) -> u32 {
        0
    }

    /// Whether some node of the system makes a mean of a sum.
    fn divides(&self) -> bool {
        true
    }

    /// Whether its windows shrink where packets come marked (ECN), and by nothing else.
    fn obeys_marks(&self) -> bool {
        false
    }

    /// Whether its nodes send to their neighbours only, so that no packet needs a way.
    fn stays_next_door(&self) -> bool {
        false
    }

    /// Whether packets choose among ways, as those do that go to an address beyond the next node; `partial`: some switches only forward.
    fn is_routed(&self, _partial: bool) -> bool {
        true
    }

    /// Whether sums are made at switches.
    fn sums_at_switches(&self) -> bool {
        true
    }

    /// Whether its trees may have hosts between their switches, which hand on: nothing of it but a ring of hosts needs ways.
    fn is_carried(&self) -> bool {
        false
    }

    /// How many trees pass switches for each worker; `None` where all switches have something of the job.
    fn trees(&self) -> Option<u32> {
        Some(1)
    }

    /// About how many bytes of lists all workers of an operation keep at most, beside their windows: for systems whose workers have lists of pairs.
    fn list_bytes(&self, _workers: u64, _elements: u64) -> u64 {
        0
    }

    /// Whether a switch knows the ports of a multicast only when packets have come by them, so that it cannot set up the group before (Canary 4.2).
    fn multicasts_by_ports(&self) -> bool {
        false
    }

    /// Whether its switches find expired timers by scanning their arrays, if they have no others (Canary 4.3).
    fn has_scans(&self) -> bool {
        false
    }

    /// Switches look at so many entries of their arrays in a second for timers that have expired: nothing where a system has no such timers, or was
    /// given by its keys in plans how they are found.
    fn follow_scan(&mut self, _entries_per_second: u32, _is_given: &dyn Fn(&str) -> bool) {}

    /// Whether 32-bit floats go on the wire as integers.
    fn fixed_point(&self) -> bool {
        false
    }

    /// The driver's elements are real: which do not fit fixed point is found out, not drawn (`a2tp 5.8`).
    fn expect_real_elements(&mut self) {}

    /// With fixed point: the share of packets that are drawn as too large at one worker.
    fn overflow(&self) -> f64 {
        0.0
    }

    /// Where vectors are sparse, at which indices workers have something.
    fn sparsity(&self) -> Option<Sparsity> {
        None
    }

    /// Whether its switches combine what they get by an operator that the job brings along, at any number of levels.
    fn takes_operators(&self) -> bool {
        false
    }

    /// The share of these indices from now on; nothing where vectors are not sparse.
    fn set_density(&mut self, _share: f64) {}

    /// What steps cost its hosts; `None` where it has none, or none that cost anything.
    fn steps_mut(&mut self) -> Option<&mut StepParameters> {
        None
    }

    /// Parameters that do where switches and hosts are processes, whose packets are late by milliseconds now and then.
    fn suit_software(&mut self) {}

    /// Whether its jobs go on around switches that are gone, or have nothing there.
    fn goes_on_without_switches(&self) -> bool {
        false
    }

    /// At most so many switches aggregate from now on; nothing where a system does not choose which.
    fn limit_aggregating(&mut self, _count: u32) {}

    /// The slowest of the workers' links has this rate: parameters that are stated for one rate follow it, but for those that were given, by
    /// their keys in plans.
    fn follow_rate(&mut self, _bits_per_second: u64, _is_given: &dyn Fn(&str) -> bool) {}

    /// The network has these ways, which take time to find: parameters that depend on how far hosts are apart follow them, after the rate, but
    /// for those that were given, by their keys in plans.
    fn follow_ways(&mut self, _longest: &dyn Fn() -> LongestWay, _is_given: &dyn Fn(&str) -> bool) {}

    /// Whether a job goes on without workers that have died (`rina 4.5` to `4.7`).
    fn goes_on_without_workers(&self) -> bool {
        false
    }

    /// Whether workers take this kind of collective at all.
    fn offers(&self, kind: CollectiveKind) -> bool {
        kind == CollectiveKind::Allreduce
    }

    /// Which collectives it has, where that is more than allreduces and less than all.
    fn offered(&self) -> Option<&'static str> {
        None
    }

    /// Whether these parameters suit a kind of collective that the system has, which is called `name`.
    ///
    /// # Errors
    /// [`BuildError`] names the parameter.
    fn check_collective(&self, _kind: CollectiveKind, _name: &str) -> Result<(), BuildError> {
        Ok(())
    }

    /// Whether a window that does not limit is one.
    fn takes_unlimited_windows(&self) -> bool {
        false
    }

    /// Whether patience ends operations also without loss recovery.
    fn always_has_patience(&self) -> bool {
        false
    }

    /// Whether it may be that a worker without loss recovery knows of nobody who is missing.
    fn names_nobody(&self) -> bool {
        false
    }

    /// Whether a worker that fails as a host has died names the dead rank, or its switch.
    fn finds_the_dead(&self) -> bool {
        true
    }

    /// Whether switches hold nothing of a job that has ended, however it ended; `reliable`: it recovers from losses.
    fn leaves_nothing(&self, _reliable: bool) -> bool {
        false
    }

    /// Length of the longest header of its packets, if that is not the longest of all; `fixed_point` says that some have exponents.
    fn header_bytes_max(&self, _fixed_point: bool) -> Option<usize> {
        None
    }

    /// Slots that a job with such a window has in use at most at a switch where it has a node; 0 without memory at switches.
    fn switch_slots(&self, window: u32) -> u64 {
        two_windows(window)
    }

    /// How many further places a block may have at once: one that is begun anew has one beside its old one.
    fn begun_anew(&self) -> u32 {
        0
    }

    /// Bytes of a slot at this switch.
    fn slot_bytes(&self, job: &JobSpec<'_, ()>, _map: &NetworkMap, _switch: NodeId) -> u64 {
        u64::from(job.payload_bytes)
    }

    /// The most bytes that a block's sum takes at any switch until it leaves, where switches tell when that is
    /// ([`Event::Scanned`](fanin_core::Event::Scanned)); `None` where they do not.
    fn sum_bytes(&self, _job: &JobSpec<'_, ()>, _map: &NetworkMap) -> Option<u64> {
        None
    }

    /// Whether the memory is one that all jobs of the system share.
    fn shares_slots(&self) -> bool {
        false
    }

    /// The parameter that says how many slots there are.
    fn slots_key(&self) -> &'static str {
        "window"
    }

    /// What a job has of the aggregators that a network gives each of its switches; `None`: nothing.
    fn aggregators(&self) -> Option<AggregatorUse> {
        None
    }

    /// So many of them are the job's.
    fn set_aggregators(&mut self, _count: u32) {}

    /// What it has at aggregators that jobs of several systems share, behind a server for each job; `None` of systems without these.
    fn aggregation(&self) -> Option<Aggregation> {
        None
    }

    /// About what a job asks of a network.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, 1)
    }

    /// Keys that some values of others make meaningless.
    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        Vec::new()
    }
}

/// What a job has beside its system's parameters that makes some of its keys meaningless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeysOf {
    /// Whether losses are recovered from.
    pub reliable: bool,
    /// Whether servers have hosts of their own.
    pub servers: bool,
}

/// Why a key means nothing to a job that does not recover from losses.
pub const UNRELIABLE: &str = "with reliable = false";

/// The key that a parameter has in plans: its name without its unit. As [`Facts::key_of`], of most parameters.
pub fn key_of(field: &str) -> &str {
    ["_ps", "_bps", "_bytes"].iter().find_map(|unit| field.strip_suffix(unit)).unwrap_or(field)
}

/// What a parameter is in plans, by the end of its name. As [`Facts::unit_of`], of most parameters.
pub fn unit_of(field: &str, is_float: bool) -> Unit {
    match field.rsplit('_').next() {
        Some("ps") => Unit::Time,
        Some("bps") => Unit::Rate,
        Some("bytes") => Unit::Bytes(1 << 31),
        _ if is_float => Unit::Fraction,
        _ => Unit::Plain,
    }
}

/// Slots of a window: two of each number, which are counted by powers of two.
pub(crate) fn two_windows(window: u32) -> u64 {
    2 * u64::from(window).next_power_of_two()
}

/// How a system's nodes are laid on a network.
pub(crate) trait Nodes: Facts {
    /// How campaigns draw it as what every job may have at first; `None` of most systems, whose jobs are made of those.
    const FIRST: Option<First> = None;

    /// The system, of those with a [`Nodes::FIRST`], of whose jobs campaigns make its jobs, where it is only one.
    const MADE_OF: Option<&'static str> = None;

    /// How campaigns draw its jobs from what there is; nothing where what draws the others' draws them, too.
    const CAMPAIGNS: &[Campaign] = &[];

    /// The job's own nodes.
    ///
    /// # Errors
    /// [`BuildError`] names the field that contradicts the network or another field.
    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError>;

    /// The nodes that jobs of the system share, of all these jobs.
    ///
    /// # Errors
    /// The job's place in `specs` and what is wrong with it.
    fn shared<P: Payload + ?Sized>(
        _specs: &[JobSpec<'_, P::Op>],
        _map: &NetworkMap,
    ) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
        Ok(Vec::new())
    }

    /// As [`AnyNode::admit`], for a job of this system.
    ///
    /// # Errors
    /// As there.
    fn admit<P: Payload + ?Sized>(
        _node: &mut AnyNode<P>,
        _switch: NodeId,
        _spec: &JobSpec<'_, P::Op>,
        _map: &NetworkMap,
    ) -> Result<bool, BuildError> {
        Ok(false)
    }

    /// As [`AnyNode::forget_durations`], of a node of this system.
    fn forget_durations<P: Payload + ?Sized>(_node: &mut AnyNode<P>) {}

    /// As [`AnyNode::contradiction`], of a node of this system.
    fn contradiction<P: Payload + ?Sized>(_node: &AnyNode<P>) -> Option<String> {
        None
    }

    /// As [`AnyNode::has_of`], of a node of this system.
    fn has_of<P: Payload + ?Sized>(_node: &AnyNode<P>, _job: JobId) -> bool {
        false
    }

    /// As [`AnyNode::is_overdue`], of a node of this system.
    fn is_overdue<P: Payload + ?Sized>(_node: &AnyNode<P>, _living: &[JobId]) -> bool {
        false
    }

    /// As [`AnyNode::is_reserved_for`], of a node of this system.
    fn is_reserved_for<P: Payload + ?Sized>(_node: &AnyNode<P>, _job: JobId) -> bool {
        false
    }

    /// As [`AnyNode::has_reserved`], of a node of this system.
    fn has_reserved<P: Payload + ?Sized>(_node: &AnyNode<P>) -> bool {
        false
    }

    /// As [`AnyNode::adds_integers`], of a node of this system.
    fn adds_integers(_node: &mut AnyNode<[u8]>) {}
}
