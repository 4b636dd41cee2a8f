//! What is known of hosts with several cables: how much may be queued before each, and who waits. What is done with it is in `leaving`.

/// No such host.
const NONE: u32 = u32::MAX;

/// The hosts with several cables.
#[derive(Debug)]
pub(crate) struct Uplinks {
    /// By host: its place in `hosts`.
    places: Vec<u32>,
    hosts: Vec<Uplinked>,
}

/// A host with several cables.
#[derive(Debug)]
pub(crate) struct Uplinked {
    /// The link of its first cable.
    pub first_link: u32,
    /// By cable: how much is queued before nodes are told to wait.
    pub room_ps: Vec<u64>,
    /// By cable: nobody gets room before all of the host's jobs are asked in turn.
    pub is_closed: Vec<bool>,
    /// Several jobs share the queues.
    pub is_shared: bool,
    /// Some node waits for a queue whose packets lack credits.
    pub for_credit: bool,
    /// When its nodes will be called back; `u64::MAX` for never.
    pub armed_ps: u64,
}

impl Uplinks {
    /// Of hosts with several cables: each with the numbers of the links that leave it, which follow each other. `None` where there are none.
    pub fn new<'a>(hosts: u32, several: impl Iterator<Item = (u32, &'a [u32])>) -> Option<Self> {
        let (mut places, mut all) = (vec![NONE; hosts as usize], Vec::new());
        for (host, links) in several {
            places[host as usize] = all.len() as u32;
            all.push(Uplinked {
                first_link: links[0],
                room_ps: vec![0; links.len()],
                is_closed: vec![false; links.len()],
                is_shared: false,
                for_credit: false,
                armed_ps: u64::MAX,
            });
        }
        (!all.is_empty()).then_some(Uplinks { places, hosts: all })
    }

    /// Whether a host has several cables.
    pub fn has(&self, host: u32) -> bool {
        self.places[host as usize] != NONE
    }

    /// What is known of a host with several cables.
    pub fn of(&mut self, host: u32) -> Option<&mut Uplinked> {
        self.hosts.get_mut(self.places[host as usize] as usize)
    }
}
