//! The way out over the links of a fabric.

use fanin_core::{Address, DropReason, JobId, PortId, Restarted, TrafficClass, Wire};
use fanin_net::Socket;
use fanin_trust::{TAG_BYTES, TURNS_BYTES};
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_wire::link::{LINK_SYSTEM, LinkHeader};

use super::Outlet;
use crate::fabric::links::datagram_bytes;
use crate::peers::PeerIndex;
impl Outlet {
    /// A packet of a peer with whom there are keys, without its tag and readable; nothing where it has a checksum.
    ///
    /// # Errors
    /// [`DropReason::Unauthenticated`]: somebody else has made it, or a bit of it has changed.
    #[inline]
    pub(crate) fn open<'a>(
        &mut self,
        from: PeerIndex,
        packet: &HopPacket<'_>,
        (datagram, scratch): (&'a [u8], &'a mut Vec<u8>),
    ) -> Result<Option<&'a [u8]>, DropReason> {
        let peer = self.peers.get_mut(from);
        let cable = self.links.as_mut().and_then(|links| links.port(from).keys.as_deref_mut());
        let opened = match (&mut peer.keys, cable) {
            (None, None) => return Ok(None),
            (Some(keys), _) => {
                let hop = packet.header();
                keys.opener.open(peer.heard.whole(hop.sequence), hop.wire_len(), datagram, scratch)
            }
            (None, Some(keys)) => {
                let hop = packet.header();
                if hop.system == LINK_SYSTEM && hop.neighbour {
                    keys.open_hello(hop.epoch, hop.sequence, datagram, scratch)
                } else {
                    keys.open(hop.epoch, peer.heard.whole(hop.sequence), hop.wire_len(), datagram, scratch)
                }
            }
        };
        opened.map(Some).ok_or(DropReason::Unauthenticated)
    }

    /// A hello has come, of which nothing is believed yet: whether it shows in which epoch the neighbour lives. It does where it repeats
    /// this node's own epoch, which nobody knows who does not get this node's hellos. Else it is answered soon, so that the neighbour can.
    ///
    /// # Errors
    /// Why it is not a hello of a neighbour.
    #[cold]
    pub(crate) fn on_greeting(&mut self, from: PeerIndex, hop: &HopHeader, rest: &[u8]) -> Result<Restarted, DropReason> {
        let Outlet { epoch, peers, links, now, .. } = self;
        let (header, _) = LinkHeader::parse(rest).map_err(|_| DropReason::Malformed)?;
        let (Some(links), LinkHeader::Hello { hears, told, fabric, .. }) = (links, header) else { return Err(DropReason::Malformed) };
        if fabric != links.fingerprint {
            return Err(DropReason::Mismatch);
        }
        let heard = &mut peers.get_mut(from).heard;
        let before = heard.epoch();
        let keys = &mut links.port(from).keys;
        if before == Some(hop.epoch) {
            // With keys that are new here, it is heard for the first time.
            keys.iter_mut().for_each(|keys| keys.believe(hop.epoch));
            return Ok(Restarted(false));
        }
        if ![hears, told].contains(&Some(*epoch)) {
            links.port(from).neighbour.on_told(*now, hop.epoch);
            return Err(DropReason::Unproven);
        }
        if !heard.agree(hop.epoch, hop.sequence) {
            return Err(DropReason::TooOld);
        }
        links.port(from).keys.iter_mut().for_each(|keys| keys.believe(hop.epoch));
        Ok(Restarted(before.is_some()))
    }

    /// Says hello where it is due, lets sources send, and hands what is due to the sender.
    pub(crate) fn drive_links(&mut self, socket: &Socket) {
        if self.links.is_none() {
            return;
        }
        self.say_hello(socket);
        self.run_sources(socket);
        self.release(socket);
    }

    /// Hellos do not queue behind data: they tell whether the neighbour lives, not how busy the link is.
    fn say_hello(&mut self, socket: &Socket) {
        let template = HopHeader { neighbour: true, ..self.hop(JobId(0), LINK_SYSTEM, Address::default()) };
        let Outlet { sender, peers, links, now, .. } = self;
        let Some(links) = links else { return };
        for (index, port) in links.ports.iter_mut().enumerate() {
            let Some(hears) = port.neighbour.hello(*now) else { continue };
            let peer = peers.get_mut(PeerIndex(index as u16));
            let (hears, told) = (peer.heard.epoch().filter(|_| hears), port.neighbour.take_told());
            let hello = LinkHeader::Hello { hears, told, port: PortId(index as u16), fabric: links.fingerprint };
            let tag_bytes = if port.keys.is_some() { TURNS_BYTES + TAG_BYTES } else { 0 };
            let bytes = HopHeader::NEIGHBOUR_LEN + hello.wire_len() + tag_bytes;
            let Some(slot) = sender.reserve(socket, peer.destination, bytes) else { continue };
            let front = HopHeader { sequence: peer.next_sequence, destination: peer.address, ..template }.emit(slot);
            hello.emit(&mut slot[front..]);
            if let Some(keys) = &mut port.keys {
                keys.seal_hello(peer.next_sequence, slot);
            } else {
                let rest = RestCheck::of([&slot[front..]]);
                HopHeader::seal(slot, rest);
            }
            peer.next_sequence = peer.next_sequence.wrapping_add(1);
            sender.commit(socket, peer.destination);
        }
    }

    fn run_sources(&mut self, socket: &Socket) {
        let Some(mut links) = self.links.take() else { return };
        let mut sources = std::mem::take(&mut links.sources);
        self.links = Some(links);
        for source in &mut sources {
            let config = source.config;
            let flow = fanin_core::FlowLabel(config.via.map_or(0, |via| via.0));
            let destination = Address::worker(config.to);
            let payload_bytes = config.payload_bytes;
            let hop = HopHeader { class: TrafficClass::Background, flow, payload_bytes, ..self.hop(JobId(0), LINK_SYSTEM, destination) };
            let header_bytes = LinkHeader::Background.wire_len();
            let front_bytes = header_bytes + usize::from(payload_bytes);
            while source.take(self.now) {
                let fill = |out: &mut [u8]| {
                    LinkHeader::Background.emit(out);
                    out[header_bytes..].fill(0);
                };
                let sent = match self.towards(&hop) {
                    Ok(peer) => self.write(socket, (peer, &hop, &mut None), front_bytes, fill, &[]),
                    Err(reason) => {
                        self.counters.drop(reason);
                        false
                    }
                };
                source.sent.packets += u64::from(sent);
                source.sent.bytes += if sent { datagram_bytes(&config) as u64 } else { 0 };
            }
        }
        if let Some(links) = &mut self.links {
            links.sources = sources;
        }
    }

    /// Numbers what is due and hands it to the sender.
    fn release(&mut self, socket: &Socket) {
        let Outlet { sender, peers, links, now, .. } = self;
        let Some(links) = links else { return };
        for (index, port) in links.ports.iter_mut().enumerate() {
            let peer = peers.get_mut(PeerIndex(index as u16));
            while let Some(datagram) = port.queue.due(*now) {
                let (bytes, in_order) = (datagram.len(), HopHeader::has_payload(datagram));
                let has_room =
                    if in_order { sender.has_room_in_order(peer.destination, bytes) } else { sender.has_room(peer.destination, bytes) };
                if !has_room {
                    // The kernel has no room: what waits here stays here.
                    break;
                }
                let slot = if in_order {
                    sender.reserve_in_order(socket, peer.destination, bytes)
                } else {
                    sender.reserve(socket, peer.destination, bytes)
                };
                let Some(slot) = slot else { break };
                slot.copy_from_slice(datagram);
                if let Some(keys) = &mut port.keys {
                    let header_bytes = HopHeader::number_for_tag(slot, peer.next_sequence);
                    keys.seal(peer.next_sequence, header_bytes, slot);
                } else {
                    HopHeader::number(slot, peer.next_sequence);
                }
                peer.next_sequence = peer.next_sequence.wrapping_add(1);
                sender.commit(socket, peer.destination);
                port.counts.packets_sent += 1;
                port.counts.bytes_sent += bytes as u64;
                port.queue.pop();
                links.released = *now;
            }
        }
    }
}
