//! Other transparent switches. Where two are joined, a connection may pass only one of them, or both; each would hold what passes it and wait
//! for the rest for ever. So a switch whose ring waits for ranks says once a second by all ports, in frames that only such switches read,
//! which ranks it has. Whoever has none of a ring's connections for itself leaves the ring to the other; where both have some, none sees all of
//! them, and the ring ends with a word why.
//!
//! | offset | bytes | field | big-endian |
//! |---|---|---|---|
//! | 0 | 6 | to | `03 fa 17 1e d0 02`: everybody |
//! | 6 | 6 | from | `02` and the end of the identity |
//! | 12 | 2 | kind | `88 b5`: IEEE 802's for local experiments |
//! | 14 | 4 | magic | `fa 17 1e d2` |
//! | 18 | 2 | entries | how many follow |
//! | 20 | 8 | identity | of the switch |
//! | 28 | 48 each | entries | ring (4), world (2), rank (2), own (2: whether the connection does not pass the port by which this frame left), family (2: 4 or 6), port of each end (2, 2), address of each end (16, 16) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fanin_core::{Duration, Instant};
use fanin_net::Offload;

use super::key::RingKey;
use super::ring::{Failure, Ring};
use super::stream::Stream;
use super::{Ports, Switch};
use crate::segment::{Flow, Unsummed};

const EVERYBODY: [u8; 6] = [0x03, 0xfa, 0x17, 0x1e, 0xd0, 0x02];
/// What stands before the identity, but for the addresses.
const KIND: [u8; 6] = [0x88, 0xb5, 0xfa, 0x17, 0x1e, 0xd2];
const HEAD: usize = 28;
const ENTRY: usize = 48;
/// So that a frame fits any network.
const ENTRIES_MAX: usize = 30;
/// Between two words, and how long a ring waits before the first.
const INTERVAL: Duration = Duration::from_us(1_000_000);

/// One rank that a switch has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    ring: u32,
    world: u16,
    rank: u16,
    /// Its connection does not pass the port by which the word left.
    own: bool,
    flow: Flow,
}

impl Entry {
    fn emit(&self, out: &mut Vec<u8>) {
        let family = if self.flow.from.is_ipv6() { 6 } else { 4 };
        let octets = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        out.extend_from_slice(&self.ring.to_be_bytes());
        for value in [self.world, self.rank, u16::from(self.own), family, self.flow.from.port(), self.flow.to.port()] {
            out.extend_from_slice(&value.to_be_bytes());
        }
        out.extend_from_slice(&octets(self.flow.from));
        out.extend_from_slice(&octets(self.flow.to));
    }

    fn parse(bytes: &[u8; ENTRY]) -> Entry {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at..at + 16]);
            if word(10) == 4 {
                IpAddr::from(Ipv4Addr::from([octets[12], octets[13], octets[14], octets[15]]))
            } else {
                Ipv6Addr::from(octets).into()
            }
        };
        Entry {
            ring: u32::from(word(0)) << 16 | u32::from(word(2)),
            world: word(4),
            rank: word(6),
            own: word(8) != 0,
            flow: Flow { from: SocketAddr::new(address(16), word(12)), to: SocketAddr::new(address(32), word(14)) },
        }
    }

    /// Whether it is a rank that this ring waits for: by its place, and by the addresses of a neighbour.
    fn is_missing_in(&self, ring: &Ring) -> bool {
        self.world == ring.world
            && self.rank < ring.world
            && ring.member(self.rank).is_none()
            && ring.fits(self.rank, self.flow).is_ok()
            && (ring.member(ring.previous(self.rank)).is_some() || ring.member(ring.next(self.rank)).is_some())
    }
}

/// Whether a frame is a switch's word to others.
pub(super) fn is_word(frame: &[u8]) -> bool {
    frame.len() >= HEAD && frame[..6] == EVERYBODY && frame[12..18] == KIND
}

fn identity(frame: &[u8]) -> u64 {
    frame[20..HEAD].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn entries(frame: &[u8]) -> impl Iterator<Item = Entry> {
    let count = usize::from(u16::from_be_bytes([frame[18], frame[19]])).min(ENTRIES_MAX);
    frame[HEAD..].as_chunks::<ENTRY>().0.iter().take(count).map(Entry::parse)
}

/// Whether a connection is known not to pass a port.
fn is_own(stream: &Stream, port: usize) -> bool {
    stream.ports.iter().all(|end| end.is_some_and(|end| end != port))
}

impl Switch {
    /// Tells other switches which ranks have come of rings that wait for others.
    pub(super) fn send_words(&mut self, now: Instant, out: &mut impl Ports) {
        if now < self.next_words {
            return;
        }
        self.next_words = now + INTERVAL;
        let waits = |ring: &Ring| ring.joined < ring.world && !ring.tree.is_used() && now.since(ring.moved) >= INTERVAL;
        if !self.rings.values().any(waits) {
            return;
        }
        for port in (0..self.ports.len()).filter(|port| self.ports[*port].is_in_service() && !self.trunks.contains_key(port)) {
            self.send_word(port, waits, out);
        }
    }

    fn send_word(&self, port: usize, tells: impl Fn(&Ring) -> bool, out: &mut impl Ports) {
        let mut body = Vec::new();
        let told = self.rings.values().filter(|ring| tells(ring)).flat_map(|ring| ring.ranks().map(move |(rank, flow)| (ring, rank, flow)));
        for (ring, rank, flow) in told.take(ENTRIES_MAX) {
            let own = self.streams.get(&flow).is_some_and(|stream| is_own(stream, port));
            Entry { ring: ring.number, world: ring.world, rank, own, flow }.emit(&mut body);
        }
        let identity = self.config.identity.to_be_bytes();
        let count = ((body.len() / ENTRY) as u16).to_be_bytes();
        let frame = [&EVERYBODY[..], &[2], &identity[3..], &KIND, &count, &identity, &body].concat();
        out.send(port, &Offload::default(), &frame);
    }

    /// Another switch says which ranks it has.
    pub(super) fn on_word(&mut self, now: Instant, port: usize, frame: &[u8], out: &mut impl Ports) {
        let other = identity(frame);
        if other == self.config.identity || self.trunks.contains_key(&port) {
            return;
        }
        let mut seen: Vec<(RingKey, Option<Entry>)> = Vec::new();
        for entry in entries(frame) {
            let Some(key) = self.numbers.get(&entry.ring) else { continue };
            if !self.rings.get(key).is_some_and(|ring| ring.joined < ring.world && !ring.tree.is_used() && entry.is_missing_in(ring)) {
                continue;
            }
            let own = entry.own.then_some(entry);
            match seen.iter_mut().find(|(known, _)| known == key) {
                Some((_, theirs)) => *theirs = theirs.or(own),
                None => seen.push((*key, own)),
            }
        }
        for (key, theirs) in seen {
            let Some(ring) = self.rings.get(&key) else { continue };
            let ours = ring.ranks().find(|(_, flow)| self.streams.get(flow).is_some_and(|stream| is_own(stream, port)));
            match (ours, theirs) {
                (Some((here, _)), Some(entry)) => {
                    let (number, interface) = (ring.number, self.ports[port].name().to_owned());
                    // The other one must know as well, before there is nothing left to be told.
                    self.send_word(port, |ring| ring.number == number, out);
                    let Flow { from, to } = entry.flow;
                    self.fail(now, key, &Failure::Divided { here, there: entry.rank, from, to, interface }, out);
                }
                (None, Some(_)) => self.leave_to(now, key, port, out),
                // Both see all; the one with the smaller identity sums.
                (None, None) if other < self.config.identity => self.leave_to(now, key, port, out),
                _ => {}
            }
        }
    }

    fn leave_to(&mut self, now: Instant, key: RingKey, port: usize, out: &mut impl Ports) {
        let Some(ring) = self.rings.get(&key) else { return };
        tracing::info!(
            ring = ring.number,
            interface = self.ports[port].name(),
            "another transparent switch behind this interface sums for the ring: its connections pass here as they are"
        );
        let flows: Vec<Flow> = ring.flows().collect();
        for flow in flows {
            self.note_unsummed(now, port, Unsummed::Elsewhere, Some(flow), "");
        }
        self.pass_on(key, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lead_back_and_any_bytes_are_read() {
        let flow = |from: &str, to: &str| Flow { from: from.parse().unwrap(), to: to.parse().unwrap() };
        let entries_in = [
            Entry { ring: 77, world: 4, rank: 3, own: true, flow: flow("10.0.0.1:5", "10.0.0.2:7") },
            Entry { ring: u32::MAX, world: 1_024, rank: 9, own: false, flow: flow("[fd00::1]:5", "[fd00::2]:7") },
        ];
        let mut frame = [&EVERYBODY[..], &[2; 6], &KIND, &[0, 2], &7u64.to_be_bytes()].concat();
        entries_in.iter().for_each(|entry| entry.emit(&mut frame));
        assert_eq!(frame.len(), HEAD + 2 * ENTRY);
        assert!(is_word(&frame) && identity(&frame) == 7);
        assert!(entries(&frame).eq(entries_in));
        for length in 0..frame.len() {
            let cut = &frame[..length];
            assert_eq!(is_word(cut), length >= HEAD);
            if is_word(cut) {
                assert_eq!(entries(cut).count(), (length - HEAD) / ENTRY);
            }
        }
        // More are claimed than there are.
        (frame[18], frame[19]) = (0xff, 0xff);
        assert_eq!(entries(&frame).count(), 2);
    }
}
