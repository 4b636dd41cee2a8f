//! Systems from elsewhere: a crate that is not of this workspace brings one along ([`OwnSystem`]), and whatever runs systems runs it.
//!
//! Which nodes it has is known when the program runs, not when Fanin is compiled, so a packet's way to its node leads through a table of
//! functions, and its header through bytes: that is what it costs. All other systems are as fast as without it.
//!
//! | what it brings | as |
//! |---|---|
//! | parameters | a type with [`serde`]'s traits, [`Default`] and [`Facts`]; a plan's keys follow from its fields |
//! | a header | any [`Wire`] of at most [`OwnHeader::BYTES_MAX`] bytes |
//! | nodes | any [`Node`] and [`Worker`] with that header, made an [`OwnNode`] by [`OwnNode::worker`] or [`OwnNode::other`] |
//! | how these are laid on a network | [`OwnSystem::nodes`] |

pub mod header;
mod layout;

use std::any::{Any, TypeId};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::RwLock;

use fanin_core::payload::{BlockExponent, OpError, Pair, Sparsity};
use fanin_core::{
    Body, Census, Collective, CollectiveKind, Egress, Event, Gauge, Ingress, Instant, JobId, JobNodes, Length, Malformed, NetworkMap, Node,
    NodeId, OperationId, Outcome, PacketKind, Payload, Piece, Tx, Wire, Worker,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::any::AnyNode;
use crate::campaign::{JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, Nodes, Unit};
use crate::system::System;

pub use layout::Rack;

/// A system that is not of this crate, by its parameters.
pub trait OwnSystem: Facts + Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in plans: none that another system has.
    const NAME: &'static str;

    /// The nodes of a job.
    ///
    /// # Errors
    /// [`BuildError`] names the field that contradicts the network or another field.
    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<OwnNode<P>>, BuildError>;

    /// Parameters for a campaign's random runs.
    fn drawn(_draw: &mut Draw) -> Self {
        Self::default()
    }
}

/// What is known of a system from elsewhere.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    default: fn() -> OwnParameters,
    drawn: fn(&mut Draw) -> OwnParameters,
    read: fn(Value) -> Result<OwnParameters, serde_json::Error>,
}

static ENTRIES: RwLock<Vec<Entry>> = RwLock::new(Vec::new());

fn entry(name: &str) -> Option<Entry> {
    let entries = ENTRIES.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    entries.iter().find(|entry| entry.name == name).copied()
}

/// Makes a system known to everything in this process that reads plans and jobs. Programs do so before anything else.
///
/// # Panics
/// Where there is a system of that name.
pub fn register<S: OwnSystem>() {
    let name = S::NAME;
    assert!(!System::NAMES.contains(&name) && entry(name).is_none(), "there is a system of the name {name:?}");
    let entry = Entry {
        name,
        default: || OwnParameters::new(S::default()),
        drawn: |draw| OwnParameters::new(S::drawn(draw)),
        read: |value| serde_json::from_value::<S>(value).map(OwnParameters::new),
    };
    ENTRIES.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(entry);
}

impl System {
    /// Names of all systems, those from elsewhere last.
    pub fn names() -> Vec<&'static str> {
        let entries = ENTRIES.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        System::NAMES.iter().copied().chain(entries.iter().map(|entry| entry.name)).collect()
    }

    /// The system of this name, with the parameters that it has where nothing is said.
    pub fn named(name: &str) -> Option<System> {
        let own = || entry(name).map(|entry| System::Own((entry.default)()));
        System::all().into_iter().find(|system| system.name() == name).or_else(own)
    }

    /// A system from elsewhere, as a campaign draws it.
    pub fn drawn_own(name: &str, draw: &mut Draw) -> Option<System> {
        entry(name).map(|entry| System::Own((entry.drawn)(draw)))
    }

    /// A system from elsewhere with these parameters; those that are not there are as where nothing is said.
    ///
    /// # Errors
    /// Which parameter is wrong, in words.
    pub fn own(name: &str, parameters: Value) -> Result<System, String> {
        let entry = entry(name).ok_or_else(|| format!("no system of the name {name:?}"))?;
        (entry.read)(parameters).map(System::Own).map_err(|error| error.to_string())
    }
}

/// The parameters of a system from elsewhere. They are read as often as plans and jobs are, and then stay for as long as the process runs.
#[derive(Clone, Copy)]
pub struct OwnParameters(&'static dyn Erased);

impl OwnParameters {
    fn new<S: OwnSystem>(parameters: S) -> Self {
        OwnParameters(Box::leak(Box::new(parameters)))
    }

    /// The system's name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The parameters, by name.
    pub fn to_json(&self) -> Value {
        self.0.json()
    }
}

impl fmt::Debug for OwnParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl PartialEq for OwnParameters {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.to_json() == other.to_json()
    }
}

/// Between processes: which system, and its parameters.
#[derive(Serialize, Deserialize)]
struct Announced {
    name: String,
    parameters: Value,
}

impl Serialize for OwnParameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Announced { name: self.name().to_string(), parameters: self.to_json() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OwnParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let Announced { name, parameters } = Announced::deserialize(deserializer)?;
        let entry = entry(&name).ok_or_else(|| D::Error::custom(format!("no system of the name {name:?}")))?;
        (entry.read)(parameters).map_err(D::Error::custom)
    }
}

/// An [`OwnSystem`], whichever it is.
trait Erased: Facts + Send + Sync {
    fn name(&self) -> &'static str;
    fn json(&self) -> Value;
    fn facts(&self) -> &dyn Facts;
    /// The same after a change.
    fn changed(&self, change: &mut dyn FnMut(&mut dyn Facts)) -> OwnParameters;
    fn of_lengths(&self, spec: &JobSpec<'_, <Length as Payload>::Op>, map: &NetworkMap) -> Laid<Length>;
    fn of_census(&self, spec: &JobSpec<'_, <Census as Payload>::Op>, map: &NetworkMap) -> Laid<Census>;
    fn of_elements(&self, spec: &JobSpec<'_, <[u8] as Payload>::Op>, map: &NetworkMap) -> Laid<[u8]>;
}

/// Nodes of a job, or why there are none.
type Laid<P> = Result<JobNodes<AnyNode<P>>, BuildError>;

fn laid<S: OwnSystem, P: Payload + ?Sized>(system: &S, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Laid<P> {
    let nodes = system.nodes::<P>(spec, map)?;
    let any = |placed: fanin_core::Placed<OwnNode<P>>| fanin_core::Placed { at: placed.at, node: AnyNode::OwnNode(placed.node) };
    Ok(JobNodes { workers: nodes.workers.into_iter().map(any).collect(), others: nodes.others.into_iter().map(any).collect() })
}

impl<S: OwnSystem> Erased for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    fn facts(&self) -> &dyn Facts {
        self
    }

    fn changed(&self, change: &mut dyn FnMut(&mut dyn Facts)) -> OwnParameters {
        let mut own = self.clone();
        change(&mut own);
        OwnParameters::new(own)
    }

    fn of_lengths(&self, spec: &JobSpec<'_, <Length as Payload>::Op>, map: &NetworkMap) -> Laid<Length> {
        laid(self, spec, map)
    }

    fn of_census(&self, spec: &JobSpec<'_, <Census as Payload>::Op>, map: &NetworkMap) -> Laid<Census> {
        laid(self, spec, map)
    }

    fn of_elements(&self, spec: &JobSpec<'_, <[u8] as Payload>::Op>, map: &NetworkMap) -> Laid<[u8]> {
        laid(self, spec, map)
    }
}

/// What comes out of a way that knows payloads by name, as the payload that was asked for: the same one.
fn same<A: Any, B: Any>(value: A) -> Option<B> {
    (Box::new(value) as Box<dyn Any>).downcast::<B>().ok().map(|same| *same)
}

impl Nodes for OwnParameters {
    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        /// As `P`, if that is `Q`.
        fn by<P: Payload + ?Sized, Q: Payload + ?Sized>(
            spec: &JobSpec<'_, P::Op>,
            lay: impl FnOnce(&JobSpec<'_, Q::Op>) -> Laid<Q>,
        ) -> Option<Laid<P>> {
            if TypeId::of::<P>() != TypeId::of::<Q>() {
                return None;
            }
            let op = same::<P::Op, Q::Op>(spec.op.clone())?;
            same(lay(&spec.with_operator(op)))
        }
        by::<P, Length>(spec, |spec| self.0.of_lengths(spec, map))
            .or_else(|| by::<P, Census>(spec, |spec| self.0.of_census(spec, map)))
            .or_else(|| by::<P, [u8]>(spec, |spec| self.0.of_elements(spec, map)))
            .unwrap_or_else(|| Err(BuildError::new("system", self.name(), "a payload of lengths, census weights or elements")))
    }
}

/// All that the system itself says.
impl Facts for OwnParameters {
    fn key_of<'a>(&self, field: &'a str) -> &'a str {
        self.0.facts().key_of(field)
    }

    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        self.0.facts().unit_of(field, is_float)
    }

    fn servers(&self) -> u32 {
        self.0.facts().servers()
    }

    fn divides(&self) -> bool {
        self.0.facts().divides()
    }

    fn obeys_marks(&self) -> bool {
        self.0.facts().obeys_marks()
    }

    fn stays_next_door(&self) -> bool {
        self.0.facts().stays_next_door()
    }

    fn is_routed(&self, partial: bool) -> bool {
        self.0.facts().is_routed(partial)
    }

    fn sums_at_switches(&self) -> bool {
        self.0.facts().sums_at_switches()
    }

    fn trees(&self) -> Option<u32> {
        self.0.facts().trees()
    }

    fn multicasts_by_ports(&self) -> bool {
        self.0.facts().multicasts_by_ports()
    }

    fn has_scans(&self) -> bool {
        self.0.facts().has_scans()
    }

    fn follow_scan(&mut self, entries_per_second: u32, is_given: &dyn Fn(&str) -> bool) {
        *self = self.0.changed(&mut |own| own.follow_scan(entries_per_second, is_given));
    }

    fn fixed_point(&self) -> bool {
        self.0.facts().fixed_point()
    }

    fn expect_real_elements(&mut self) {
        *self = self.0.changed(&mut |own| own.expect_real_elements());
    }

    fn overflow(&self) -> f64 {
        self.0.facts().overflow()
    }

    fn sparsity(&self) -> Option<Sparsity> {
        self.0.facts().sparsity()
    }

    fn follow_rate(&mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) {
        *self = self.0.changed(&mut |own| own.follow_rate(bits_per_second, is_given));
    }

    fn set_density(&mut self, share: f64) {
        *self = self.0.changed(&mut |own| own.set_density(share));
    }

    fn goes_on_without_workers(&self) -> bool {
        self.0.facts().goes_on_without_workers()
    }

    fn offers(&self, kind: CollectiveKind) -> bool {
        self.0.facts().offers(kind)
    }

    fn offered(&self) -> Option<&'static str> {
        self.0.facts().offered()
    }

    fn check_collective(&self, kind: CollectiveKind, name: &str) -> Result<(), BuildError> {
        self.0.facts().check_collective(kind, name)
    }

    fn takes_unlimited_windows(&self) -> bool {
        self.0.facts().takes_unlimited_windows()
    }

    fn always_has_patience(&self) -> bool {
        self.0.facts().always_has_patience()
    }

    fn names_nobody(&self) -> bool {
        self.0.facts().names_nobody()
    }

    fn finds_the_dead(&self) -> bool {
        self.0.facts().finds_the_dead()
    }

    fn leaves_nothing(&self, reliable: bool) -> bool {
        self.0.facts().leaves_nothing(reliable)
    }

    fn header_bytes_max(&self, fixed_point: bool) -> Option<usize> {
        self.0.facts().header_bytes_max(fixed_point)
    }

    fn switch_slots(&self, window: u32) -> u64 {
        self.0.facts().switch_slots(window)
    }

    fn begun_anew(&self) -> u32 {
        self.0.facts().begun_anew()
    }

    fn slot_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap, switch: NodeId) -> u64 {
        self.0.facts().slot_bytes(job, map, switch)
    }

    fn sum_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap) -> Option<u64> {
        self.0.facts().sum_bytes(job, map)
    }

    fn shares_slots(&self) -> bool {
        self.0.facts().shares_slots()
    }

    fn slots_key(&self) -> &'static str {
        self.0.facts().slots_key()
    }

    fn aggregators(&self) -> Option<AggregatorUse> {
        self.0.facts().aggregators()
    }

    fn set_aggregators(&mut self, count: u32) {
        *self = self.0.changed(&mut |own| own.set_aggregators(count));
    }

    fn load(&self, job: &JobSize) -> Load {
        self.0.facts().load(job)
    }

    fn idle_keys(&self, job: &KeysOf) -> Vec<KeyUse> {
        self.0.facts().idle_keys(job)
    }
}

/// A header of a system from elsewhere: its kind, and the bytes that the system has written.
///
/// On the wire: a byte whose bits 7 to 5 are the kind of packet and whose others the length, and so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OwnHeader {
    kind: PacketKind,
    length: u8,
    bytes: [u8; OwnHeader::BYTES_MAX],
}

const KINDS: [PacketKind; 3] = [PacketKind::Contribution, PacketKind::Aggregate, PacketKind::Control];
const LENGTH: u8 = 0b1_1111;

impl OwnHeader {
    /// Bytes of a system's header at most.
    pub const BYTES_MAX: usize = 22;

    /// As bytes.
    ///
    /// # Panics
    /// Where the header is longer than [`OwnHeader::BYTES_MAX`].
    #[inline]
    pub fn of<H: Wire>(header: &H) -> Self {
        const { assert!(H::MAX_LEN <= Self::BYTES_MAX, "a header of a system from elsewhere has at most 22 bytes") };
        let mut bytes = [0; OwnHeader::BYTES_MAX];
        let length = header.emit(&mut bytes) as u8;
        OwnHeader { kind: header.kind(), length, bytes }
    }

    /// As the system has it.
    ///
    /// # Errors
    /// The system's own.
    #[inline]
    pub fn read<H: Wire>(&self) -> Result<H, Malformed> {
        H::parse(&self.bytes[..usize::from(self.length)]).map(|(header, _)| header)
    }
}

impl Wire for OwnHeader {
    const MAX_LEN: usize = 1 + OwnHeader::BYTES_MAX;

    fn wire_len(&self) -> usize {
        1 + usize::from(self.length)
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let (&first, rest) = bytes.split_first().ok_or(Malformed::Truncated { needed: 1, got: 0 })?;
        let length = first & LENGTH;
        let kind = *KINDS.get(usize::from(first >> 5)).ok_or(Malformed::Field { name: "kind", value: u64::from(first >> 5) })?;
        if usize::from(length) > OwnHeader::BYTES_MAX {
            return Err(Malformed::Field { name: "length", value: u64::from(length) });
        }
        let needed = usize::from(length);
        let own = rest.get(..needed).ok_or(Malformed::Truncated { needed: 1 + needed, got: bytes.len() })?;
        let mut copy = [0; OwnHeader::BYTES_MAX];
        copy[..needed].copy_from_slice(own);
        Ok((OwnHeader { kind, length, bytes: copy }, 1 + needed))
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        let length = usize::from(self.length);
        out[0] = (self.kind as u8) << 5 | self.length;
        out[1..=length].copy_from_slice(&self.bytes[..length]);
        1 + length
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }
}

/// What a system's nodes send by: their headers become bytes.
struct OwnTx<'a, P: Payload + ?Sized>(&'a mut dyn Tx<OwnHeader, P>);

impl<H: Wire, P: Payload + ?Sized> Tx<H, P> for OwnTx<'_, P> {
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>) {
        self.0.send(to, &OwnHeader::of(header), body);
    }

    fn room(&mut self, to: Egress<'_>) -> bool {
        self.0.room(to)
    }

    fn note(&mut self, event: Event) {
        self.0.note(event);
    }

    fn speak_for(&mut self, job: JobId) {
        self.0.speak_for(job);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        self.0.contribute(piece, accumulator, first)
    }

    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.0.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        self.0.deliver(piece, body)
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        self.0.exponent(piece)
    }

    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, exponent: BlockExponent) {
        self.0.send_fixed(to, &OwnHeader::of(header), piece, exponent);
    }

    fn deliver_fixed(&mut self, piece: Piece, payload: &P, exponent: BlockExponent) -> Result<(), OpError> {
        self.0.deliver_fixed(piece, payload, exponent)
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        self.0.read_pairs(piece, pairs)
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.0.deliver_pairs(piece, pairs)
    }
}

/// A node of a system from elsewhere.
///
/// Two are equal where they are the same one: the model checker, which compares nodes, is for systems of this workspace.
pub struct OwnNode<P: Payload + ?Sized>(Box<dyn AnyOwn<P>>);

impl<P: Payload + ?Sized> OwnNode<P> {
    /// A worker.
    pub fn worker<W: Worker<P> + Clone + fmt::Debug + Send + Sync + 'static>(worker: W) -> Self {
        OwnNode(Box::new(IsWorker(worker)))
    }

    /// A switch or a server.
    pub fn other<N: Node<P> + Clone + fmt::Debug + Send + Sync + 'static>(node: N) -> Self {
        OwnNode(Box::new(IsOther(node)))
    }

    /// Stored times stay as they are: see the type.
    pub(crate) fn rebase(&mut self, _now: Instant) {}
}

impl<P: Payload + ?Sized> Clone for OwnNode<P> {
    fn clone(&self) -> Self {
        OwnNode(self.0.copy())
    }
}

impl<P: Payload + ?Sized> PartialEq for OwnNode<P> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(&raw const *self.0, &raw const *other.0)
    }
}

impl<P: Payload + ?Sized> Eq for OwnNode<P> {}

impl<P: Payload + ?Sized> Hash for OwnNode<P> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        (&raw const *self.0).cast::<()>().hash(state);
    }
}

impl<P: Payload + ?Sized> fmt::Debug for OwnNode<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A node, whichever it is; what only workers do has no effect on others.
trait AnyOwn<P: Payload + ?Sized>: fmt::Debug + Send + Sync {
    fn copy(&self) -> Box<dyn AnyOwn<P>>;
    fn receive(&mut self, now: Instant, from: Ingress, header: &OwnHeader, payload: &P, tx: OwnTx<'_, P>) -> Option<Instant>;
    fn on_timeout(&mut self, now: Instant, tx: OwnTx<'_, P>);
    fn next_timeout(&self) -> Option<Instant>;
    fn on_tx_ready(&mut self, now: Instant, tx: OwnTx<'_, P>);
    fn on_job_end(&mut self, now: Instant, job: JobId, tx: OwnTx<'_, P>);
    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64));
    fn submit(&mut self, now: Instant, collective: Collective, tx: OwnTx<'_, P>);
    fn poll(&mut self) -> Option<Outcome>;
    fn remaining(&self) -> Option<u32>;
    fn cancel(&mut self, now: Instant, operation: OperationId, tx: OwnTx<'_, P>);
}

#[derive(Clone, Debug)]
struct IsWorker<W>(W);

#[derive(Clone, Debug)]
struct IsOther<N>(N);

/// What all nodes do.
macro_rules! as_node {
    () => {
        fn copy(&self) -> Box<dyn AnyOwn<P>> {
            Box::new(self.clone())
        }

        fn receive(&mut self, now: Instant, from: Ingress, header: &OwnHeader, payload: &P, mut tx: OwnTx<'_, P>) -> Option<Instant> {
            match header.read() {
                Ok(header) => self.0.receive(now, from, &header, payload, &mut tx),
                Err(_) => {
                    tx.0.note(Event::Dropped(fanin_core::DropReason::Mismatch));
                    self.0.next_timeout()
                }
            }
        }

        fn on_timeout(&mut self, now: Instant, mut tx: OwnTx<'_, P>) {
            self.0.on_timeout(now, &mut tx);
        }

        fn next_timeout(&self) -> Option<Instant> {
            self.0.next_timeout()
        }

        fn on_tx_ready(&mut self, now: Instant, mut tx: OwnTx<'_, P>) {
            self.0.on_tx_ready(now, &mut tx);
        }

        fn on_job_end(&mut self, now: Instant, job: JobId, mut tx: OwnTx<'_, P>) {
            self.0.on_job_end(now, job, &mut tx);
        }

        fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
            self.0.gauges(report);
        }
    };
}

impl<P: Payload + ?Sized, W: Worker<P> + Clone + fmt::Debug + Send + Sync + 'static> AnyOwn<P> for IsWorker<W> {
    as_node!();

    fn submit(&mut self, now: Instant, collective: Collective, mut tx: OwnTx<'_, P>) {
        self.0.submit(now, collective, &mut tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.0.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.0.remaining()
    }

    fn cancel(&mut self, now: Instant, operation: OperationId, mut tx: OwnTx<'_, P>) {
        self.0.cancel(now, operation, &mut tx);
    }
}

impl<P: Payload + ?Sized, N: Node<P> + Clone + fmt::Debug + Send + Sync + 'static> AnyOwn<P> for IsOther<N> {
    as_node!();

    fn submit(&mut self, _now: Instant, _collective: Collective, tx: OwnTx<'_, P>) {
        tx.0.note(Event::Broken("a node without a vector was asked to submit"));
    }

    fn poll(&mut self) -> Option<Outcome> {
        None
    }

    fn remaining(&self) -> Option<u32> {
        None
    }

    fn cancel(&mut self, _now: Instant, _operation: OperationId, tx: OwnTx<'_, P>) {
        tx.0.note(Event::Broken("a node without a vector was asked to cancel"));
    }
}

impl<P: Payload + ?Sized> Node<P> for OwnNode<P> {
    type Header = OwnHeader;

    fn on_packet<T: Tx<OwnHeader, P>>(&mut self, now: Instant, from: Ingress, header: &OwnHeader, payload: &P, tx: &mut T) {
        self.0.receive(now, from, header, payload, OwnTx(tx));
    }

    fn receive<T: Tx<OwnHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &OwnHeader,
        payload: &P,
        tx: &mut T,
    ) -> Option<Instant> {
        self.0.receive(now, from, header, payload, OwnTx(tx))
    }

    fn on_timeout<T: Tx<OwnHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.0.on_timeout(now, OwnTx(tx));
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }

    fn on_tx_ready<T: Tx<OwnHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.0.on_tx_ready(now, OwnTx(tx));
    }

    fn on_job_end<T: Tx<OwnHeader, P>>(&mut self, now: Instant, job: JobId, tx: &mut T) {
        self.0.on_job_end(now, job, OwnTx(tx));
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        self.0.gauges(report);
    }
}

impl<P: Payload + ?Sized> Worker<P> for OwnNode<P> {
    fn submit<T: Tx<OwnHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        self.0.submit(now, collective, OwnTx(tx));
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.0.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.0.remaining()
    }

    fn cancel<T: Tx<OwnHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        self.0.cancel(now, operation, OwnTx(tx));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use fanin_wire::tree::TreeHeader;

    #[test]
    fn packets_begin_with_the_number_of_systems_from_elsewhere() {
        let header = TreeHeader::Contribution { block: 77, attempt: 3 };
        let own = OwnHeader::of(&header);
        comes_back(255, own);
        assert_eq!((own.read(), own.kind()), (Ok(header), header.kind()));
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        assert_eq!(OwnHeader::parse(&[]), Err(Malformed::Truncated { needed: 1, got: 0 }));
        assert_eq!(OwnHeader::parse(&[3, 1, 2]), Err(Malformed::Truncated { needed: 4, got: 3 }));
        assert_eq!(OwnHeader::parse(&[23; 40]), Err(Malformed::Field { name: "length", value: 23 }));
        assert_eq!(OwnHeader::parse(&[0xE1, 0]), Err(Malformed::Field { name: "kind", value: 7 }));
        assert!(OwnHeader::of(&TreeHeader::Aggregate { block: 1 }).read::<fanin_wire::rina::RinaHeader>().is_err());
    }
}
