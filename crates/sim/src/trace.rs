//! What arrives by links, packet by packet, for whoever wants to see it.
//!
//! A packet is noted when its last bit is at the far end of a link; one that is lost before that is not, nor is a repeat that the receiver
//! drops. How much is kept is bounded, and up to there a run goes as it would without.

use std::fmt;

use fanin_core::{Address, FlowLabel, Instant, JobId, NodeId, Role, Via};

use crate::packet::{Head, Rest, flags};

/// Which packets are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceConfig {
    /// Numbers of links, as in [`Topology::links`](crate::Topology::links); `None` for all.
    pub links: Option<Vec<u32>>,
    /// How many packets are kept at most: the first ones. The run ends with the next one.
    pub packets_max: usize,
    /// From when on.
    pub from: Instant,
    /// Until when, that time included.
    pub until: Instant,
}

/// A packet that has arrived at the far end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedPacket<H, O> {
    /// When.
    pub at: Instant,
    /// By which link.
    pub link: u32,
    /// Who made it.
    pub source: Address,
    /// Who it is for; of no meaning with `neighbour`.
    pub destination: Address,
    /// For the job's node at the far end of this link.
    pub neighbour: bool,
    /// Whether aggregators may absorb it.
    pub via: Via,
    /// It has met a queue that marks.
    pub ecn: bool,
    /// It belongs to no job.
    pub background: bool,
    /// The job that it belongs to.
    pub job: JobId,
    /// Label for flow hashing.
    pub flow: FlowLabel,
    /// Length on the wire as the simulator counts it.
    pub frame_bytes: u32,
    /// The system's header.
    pub header: H,
    /// What it carries.
    pub payload: O,
}

/// What was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace<H, O> {
    /// In the order in which they arrived.
    pub packets: Vec<TracedPacket<H, O>>,
    /// The run was ended since there is no room for more.
    pub is_full: bool,
}

/// Which headers are kept, by what they say.
pub struct Keep<H>(Box<Choice<H>>);

type Choice<H> = dyn Fn(JobId, &H) -> bool + Send;

impl<H> Keep<H> {
    /// Those of packets for which `keep` says so. The job comes first.
    pub fn only(keep: impl Fn(JobId, &H) -> bool + Send + 'static) -> Self {
        Keep(Box::new(keep))
    }

    /// All.
    pub fn all() -> Self {
        Keep::only(|_, _| true)
    }
}

impl<H> fmt::Debug for Keep<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keep")
    }
}

/// Keeps packets during a run.
#[derive(Debug)]
pub(crate) struct Tracer<H, O> {
    config: TraceConfig,
    keep: Keep<H>,
    /// By link. Links to hosts are looked at for other reasons, too.
    links: Vec<bool>,
    trace: Trace<H, O>,
}

impl<H: Clone, O: Clone> Tracer<H, O> {
    /// `links` is how many there are.
    pub fn new(config: TraceConfig, keep: Keep<H>, links: usize) -> Self {
        let links = (0..links as u32).map(|link| config.links.as_ref().is_none_or(|chosen| chosen.contains(&link))).collect();
        Tracer { config, keep, links, trace: Trace { packets: Vec::new(), is_full: false } }
    }

    /// Whether packets of this link are kept.
    pub fn looks_at(&self, link: u32) -> bool {
        self.links[link as usize]
    }

    /// A packet arrives by a link that is looked at.
    pub fn note(&mut self, now_ps: u64, link: u32, head: &Head, rest: &Rest<H, O>) {
        let at = Instant::from_ps(now_ps);
        if !self.looks_at(link) || at < self.config.from || at > self.config.until || !(self.keep.0)(JobId(head.job), &rest.header) {
            return;
        }
        if self.trace.packets.len() >= self.config.packets_max {
            self.trace.is_full = true;
            return;
        }
        let label = head.label();
        let role = Role::from_number(label.destination_role()).unwrap_or_default();
        self.trace.packets.push(TracedPacket {
            at,
            link,
            source: Address { node: NodeId(rest.source), role: label.source_role() },
            destination: Address { node: NodeId(head.destination), role },
            neighbour: head.has(flags::NEIGHBOUR),
            via: if head.has(flags::VIA_AGGREGATORS) { Via::Aggregators } else { Via::Direct },
            ecn: head.has(flags::ECN),
            background: head.has(flags::BACKGROUND),
            job: JobId(head.job),
            flow: FlowLabel(rest.flow),
            frame_bytes: head.frame_bytes,
            header: rest.header.clone(),
            payload: rest.payload.clone(),
        });
    }

    /// Whether there was one packet more than there is room for.
    pub fn is_full(&self) -> bool {
        self.trace.is_full
    }

    pub fn into_trace(self) -> Trace<H, O> {
        self.trace
    }
}
