//! What a core of a switch has to do; see [`crate::engine`].

/// What a core handles at the moment: how much that is, and what the node has sent.
#[derive(Debug, Default)]
pub(crate) struct Handling {
    /// Places that were looked at for a sum that leaves.
    pub places_scanned: u32,
    /// Working memory that the node has taken for a block.
    pub taken_bytes: Option<u32>,
    /// A block's sum leaves.
    pub has_left: bool,
    /// Packets by the link by which they leave.
    pub outputs: Vec<(u32, u32)>,
}

/// A packet at a switch with cores.
#[derive(Debug)]
pub(crate) struct Task {
    /// The link by which it came, and the packet.
    pub link: u32,
    pub place: u32,
    /// Where the switch's state is, and the group of its cores.
    pub switch: u32,
    pub group: u32,
    /// The cluster in whose memory its block is.
    pub cluster: u32,
    pub job: u16,
    /// What may be locked.
    pub block: u64,
    pub bytes: u64,
    /// When it came, and when a core took it.
    pub arrived_ps: u64,
    pub taken_ps: u64,
    /// Its block has been given memory for it.
    pub is_given: bool,
    /// The block's sum leaves when it is done.
    pub has_left: bool,
    /// What leaves when it is done.
    pub outputs: Vec<(u32, u32)>,
}

impl Task {
    /// One whose memory is still to be filled.
    pub const EMPTY: Task = Task {
        link: 0,
        place: 0,
        switch: 0,
        group: 0,
        cluster: 0,
        job: 0,
        block: 0,
        bytes: 0,
        arrived_ps: 0,
        taken_ps: 0,
        is_given: false,
        has_left: false,
        outputs: Vec::new(),
    };
}
