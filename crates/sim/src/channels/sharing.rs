//! The channels of a cable at work: they share its transmitter.

use fanin_core::Wire;

use crate::net::Net;
use crate::topology::Cable;

impl<H: Wire, O: Clone> Net<H, O> {
    /// A link has committed a departure: the other channels of its cable know until when the transmitter is busy.
    pub fn share_transmitter(&mut self, link: u32) {
        let busy_until = self.links[link as usize].busy_until;
        for other in self.channels.of_cable(self.channels.cable(link)) {
            self.links[other as usize].busy_until = busy_until;
        }
    }

    /// The cable that a link is a channel of.
    pub fn cable(&self, link: usize) -> Cable {
        self.topology.links[self.channels.cable(link as u32) as usize]
    }

    /// At the end: what a further channel has sent is counted at its cable's link.
    pub fn count_channel(&mut self, link: u32) {
        let (cable, further) = self.links.split_at_mut(link as usize);
        let (cable, further) = (&mut cable[self.channels.cable(link) as usize], &further[0]);
        cable.bytes_sent += further.bytes_sent;
        cable.packets_sent += further.packets_sent;
        cable.packets_dropped += further.packets_dropped;
        cable.peak_ps = cable.peak_ps.max(further.peak_ps);
    }

    /// What all channels of a cable have queued at its near end, as the time that it takes to send it.
    pub fn queued_before(&self, cable: u32) -> u64 {
        let busy_ps = self.links[cable as usize].busy_until.saturating_sub(self.now);
        busy_ps + self.channels.of_cable(cable).map(|link| self.links[link as usize].waiting_ps).sum::<u64>()
    }
}
