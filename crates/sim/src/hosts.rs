//! The queues of hosts, and their nodes that wait for room in them.

use fanin_core::{DropReason, Egress, NodeId, Wire};

use crate::net::{HeldBack, Net, TxWaiting};

impl<H: Wire, O: Clone> Net<H, O> {
    /// Sends a packet from a host, now or a little later. `by_route`: where the host has several cables, it takes any of them.
    #[inline(always)]
    pub fn leave_host(&mut self, link: u32, place: u32, bytes: u32, by_route: bool) {
        if self.has_special_hosts {
            return self.leave_special_host(link, place, bytes, by_route);
        }
        self.transmit(link, place, bytes);
    }

    #[inline(never)]
    fn leave_special_host(&mut self, mut link: u32, place: u32, bytes: u32, by_route: bool) {
        let host = self.links[link as usize].from.0;
        if by_route && self.is_uplinked(host) {
            match self.uplink_of(host, place) {
                Some(chosen) => link = chosen,
                None => return self.drop_packet(place, DropReason::NoRoute),
            }
        }
        if let Some(noise) = &mut self.noise[self.packets.get(place).job as usize]
            && let Some(late_ps) = noise.draw(host, self.now)
        {
            return self.hold_back(self.now + late_ps, HeldBack::Leave(link, place));
        }
        self.transmit(link, place, bytes);
    }

    /// Whether the queue of host `host` before its link `number` has room; if not, its nodes will be called back. What job asks for which way
    /// matters where the host has several cables.
    #[inline(always)]
    pub fn host_room(&mut self, host: u32, number: u32, job: u16, to: Egress<'_>) -> bool {
        let link = &self.links[number as usize];
        if link.queued_ps(self.now) < link.room_ps {
            return true;
        }
        match self.tx_waiting[host as usize] {
            TxWaiting::Scheduled | TxWaiting::ForCredit => {}
            TxWaiting::No => self.call_back(host, number),
            TxWaiting::Apart => return self.uplink_room(host, job, to),
        }
        false
    }

    /// Schedules the call when the host's queue is nearly empty.
    fn call_back(&mut self, host: u32, number: u32) {
        let link = &mut self.links[number as usize];
        let mut room_ps = link.room_ps;
        if self.shared_room_ps[host as usize] > 0 {
            room_ps = self.shared_room_ps[host as usize];
            link.room_ps = 0;
        }
        if link.waiting_ps > 0 {
            self.tx_waiting[host as usize] = TxWaiting::ForCredit;
            return;
        }
        self.tx_waiting[host as usize] = TxWaiting::Scheduled;
        let early = room_ps / 4;
        let at = link.busy_until.saturating_sub(early).max(self.now);
        self.queue.push(at, self.ids.tx_ready + host);
    }

    /// Several jobs share a host's queue, which this link empties. While one of them waits for room, none gets any before all are asked in turn:
    /// else a job that has more packets under way, and so is woken more often, would have ever more of the link.
    pub fn share_queue(&mut self, host: u32, number: u32) {
        if self.is_uplinked(host) {
            return self.share_uplinks(host);
        }
        if self.shared_room_ps[host as usize] == 0 {
            self.shared_room_ps[host as usize] = self.links[number as usize].room_ps;
        }
    }

    /// The jobs of a host are asked in turn.
    pub fn open_queue(&mut self, host: u32) {
        if self.tx_waiting[host as usize] == TxWaiting::Apart {
            return self.open_uplinks(host);
        }
        self.tx_waiting[host as usize] = TxWaiting::No;
        let room_ps = self.shared_room_ps[host as usize];
        if room_ps > 0 {
            let number = self.topology.links_out(NodeId(host))[0];
            self.links[number as usize].room_ps = room_ps;
        }
    }

    /// What a host has queued, as the time that its link takes for it: more after each packet.
    #[inline]
    pub fn queued_at(&self, host: u32) -> u64 {
        if self.tx_waiting[host as usize] == TxWaiting::Apart {
            return self.queued_at_uplinks(host);
        }
        self.links[self.topology.links_out(NodeId(host))[0] as usize].queued_ps(self.now)
    }

    /// How long a host's queue may take to empty for there to be room in it.
    pub fn room_ps(&mut self, host: u32, number: u32) -> u64 {
        if self.tx_waiting[host as usize] == TxWaiting::Apart {
            return self.uplink_room_ps(host, number);
        }
        self.links[number as usize].room_ps.max(self.shared_room_ps[host as usize])
    }

    /// The packets of a host's queue have got credits: its nodes are called back if they wait.
    #[inline]
    pub fn host_may_send(&mut self, number: u32) {
        let host = self.links[number as usize].from.0;
        match self.tx_waiting[host as usize] {
            TxWaiting::No | TxWaiting::Scheduled => {}
            TxWaiting::ForCredit => self.call_back(host, number),
            TxWaiting::Apart => self.uplink_may_send(host, number),
        }
    }
}
