//! What other switches say of rings that they sum together with this one.

use fanin_core::Instant;
use fanin_core::hash::mix;
use fanin_wire::stream::MessageHeader;

use super::key::RingKey;
use super::ring::Failure;
use super::ring::tree::Child;
use super::stream::{State, Stream};
use super::{Ports, Switch, Way};
use crate::rdma::told::is_told;
use crate::segment::Flow;
use crate::trunk::message::Said;
use crate::trunk::{Came, Role, Trunk, greets_above};

impl Switch {
    /// The way to the switch above, if there is one.
    pub(super) fn open_uplink(&mut self) {
        if let Some(port) = self.config.uplink {
            self.open_trunk(Instant::ZERO, port, Role::Below);
        }
    }

    /// Each has an identity of its own, also where there was another one behind the port before.
    pub(super) fn open_trunk(&mut self, now: Instant, port: usize, role: Role) {
        self.close_trunk(port);
        self.trunks_opened += 1;
        self.trunks.insert(port, Trunk::new(now, mix(self.config.identity, self.trunks_opened), role));
    }

    /// What has been counted of it stays.
    pub(super) fn close_trunk(&mut self, port: usize) {
        if let Some(trunk) = self.trunks.remove(&port) {
            self.statistics.trunk_repeated += trunk.counts.again;
            self.statistics.trunk_damaged += trunk.counts.damaged;
        }
    }

    /// A frame of another switch, for this one alone.
    pub(super) fn on_trunk_frame(&mut self, now: Instant, port: usize, frame: &[u8], out: &mut impl Ports) {
        if !self.trunks.contains_key(&port) {
            // Whatever else comes first is of a time when there was another one here.
            if !greets_above(frame) {
                return;
            }
            if self.has_workers(port) {
                return self.note_strange(now, port, "that it is behind an interface behind which a ring has workers");
            }
            self.open_trunk(now, port, Role::Above);
        }
        let Some(trunk) = self.trunks.get_mut(&port) else { return };
        match trunk.on_frame(now, frame) {
            Came::Nothing | Came::Damaged => {}
            Came::Up => {
                let (interface, is_above) = (self.ports[port].name(), self.config.uplink == Some(port));
                tracing::info!(interface, is_above, "another transparent switch sums together with this one");
                self.grow_all(now, out);
                self.rdma.on_trunk(port, &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks });
            }
            Came::Anew => {
                self.end_beyond(now, port, true, out);
                self.grow_all(now, out);
                self.rdma.on_trunk(port, &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks });
            }
            Came::Messages(bodies) => {
                for body in bodies {
                    if is_told(&body) {
                        self.on_told(now, port, &body, out);
                        continue;
                    }
                    match Said::parse(&body) {
                        Ok((run, said)) => self.on_said(now, port, run, said, out),
                        Err(error) => self.note_strange(now, port, &error.to_string()),
                    }
                }
            }
        }
    }

    /// What another switch says of a ring over RDMA.
    fn on_told(&mut self, now: Instant, port: usize, body: &[u8], out: &mut impl Ports) {
        let way = &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks };
        if let Err(what) = self.rdma.on_told(now, (port, self.ports[port].name()), body, way) {
            self.note_strange(now, port, &what);
        }
    }

    /// Whether a ring has workers behind a port that leads to no other switch: one of them could claim to be a switch.
    fn has_workers(&self, port: usize) -> bool {
        let is_one = |stream: &Stream| matches!(stream.state, State::Member(_)) && stream.ports.contains(&Some(port));
        self.streams.values().any(is_one) || self.rdma.has_workers(port)
    }

    fn grow_all(&mut self, now: Instant, out: &mut impl Ports) {
        let mut keys: Vec<RingKey> = self.rings.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| self.grow(now, key, out));
    }

    /// Something that no switch says which does what this one does.
    pub(super) fn note_strange(&mut self, now: Instant, port: usize, what: &str) {
        self.statistics.trunk_strange += 1;
        if self.notices.strange.count(now) {
            let interface = self.ports[port].name();
            tracing::warn!(interface, what, "another transparent switch has said something that does not fit: it is left alone");
        }
    }

    fn on_said(&mut self, now: Instant, port: usize, run: u64, said: Said, out: &mut impl Ports) {
        let is_above = self.config.uplink == Some(port);
        if let (Said::Rank { ring, world, rank, flow }, false) = (&said, is_above) {
            return self.on_rank(now, (port, run), (*ring, *world), (*rank, *flow), out);
        }
        let key = if is_above { Some(RingKey(run)) } else { self.runs.get(&(port, run)).copied() };
        // Of a run that is over.
        let Some(key) = key.filter(|key| self.rings.contains_key(key)) else {
            if let Said::Segment { stub, .. } = &said {
                self.ask_again(port, stub, out);
            }
            return;
        };
        match (said, is_above) {
            (Said::Begin { memory, ranks }, true) => self.on_begin(now, key, memory, ranks, out),
            (Said::Whole { offset, bytes }, true) => self.on_whole(now, key, offset, &bytes, out),
            (Said::Room { to }, true) => self.on_room(key, to),
            (Said::Part { offset, bytes }, false) => self.on_part(now, port, key, offset, &bytes, out),
            (Said::Released { to }, false) => self.on_released(port, key, to, out),
            (Said::Over, false) => self.on_over(port, key, out),
            (Said::Segment { rank, offset, stub }, _) => self.on_stub(now, port, key, (rank, offset), stub, out),
            (Said::End { rank, of, at }, _) => self.on_far_end(now, port, key, (rank, of, at), out),
            (Said::Closing, _) => {
                if let Some(ring) = self.rings.get_mut(&key).filter(|ring| !ring.is_closing) {
                    ring.is_closing = true;
                    self.spread_word(key, port, &Said::Closing);
                }
            }
            (Said::Fails { why }, _) => self.fail(now, key, &Failure::Told(why), out),
            _ => self.note_strange(now, port, "the other direction's"),
        }
    }

    /// A rank is behind a switch below.
    fn on_rank(
        &mut self,
        now: Instant,
        (port, run): (usize, u64),
        (number, world): (u32, u16),
        (rank, flow): (u16, Flow),
        out: &mut impl Ports,
    ) {
        if !(2..=MessageHeader::WORLD_MAX).contains(&world) || rank >= world {
            return self.note_strange(now, port, "a rank");
        }
        let known = self.runs.get(&(port, run)).copied();
        let admitted = match known {
            Some(key) => self.admit(key, flow, rank, world).map(|()| key),
            None => self.admitted(now, flow, (number, rank, world), out),
        };
        let key = match admitted {
            Ok(key) => key,
            Err(failure) => {
                self.statistics.refused += 1;
                tracing::warn!(ring = number, rank, from = %flow.from, "refused: {failure}");
                let ring = known.or_else(|| self.numbers.get(&number).copied());
                if let Some(key) = ring.filter(|key| known.is_some() || !failure.is_newcomers() && self.rings.contains_key(key)) {
                    self.fail(now, key, &failure, out);
                }
                return self.say(port, run, &Said::Fails { why: failure.to_string() });
            }
        };
        let Some(ring) = self.rings.get_mut(&key) else { return };
        ring.tree.elsewhere.insert(rank, flow);
        if let Some(stream) = self.streams.get_mut(&flow) {
            stream.far_ring = Some(key);
        }
        ring.moved = now;
        match ring.tree.children.iter_mut().find(|child| (child.port, child.run) == (port, run)) {
            Some(child) => child.ranks.push(rank),
            None => ring.tree.children.push(Child { port, run, ranks: vec![rank], released: 0, room: 0, is_over: false }),
        }
        self.runs.insert((port, run), key);
        self.grow(now, key, out);
    }

    /// Somebody has ended whom another switch sees.
    fn on_far_end(&mut self, now: Instant, port: usize, key: RingKey, (rank, of, at): (u16, u16, u64), out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key).filter(|ring| rank < ring.world && of < ring.world) else { return };
        if ring.note_end(super::ring::End { rank, of, at, since: now }) {
            self.spread_word(key, port, &Said::End { rank, of, at });
            self.check_ends(now, key, out);
        }
    }
}
