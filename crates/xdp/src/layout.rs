//! What programs and this process agree on: limits, values of maps, why frames go up the stack.

use fanin_core::{DropReason, ReplayWindow, RetransmitReason, Tally};

use crate::record::{Record, array, lock, number};

/// Ranks of a job: a bit each in a word.
pub const RANKS_MAX: u32 = 64;
/// Servers of a job.
pub const SERVERS_MAX: usize = fanin_wire::atp::FragmentId::SERVERS as usize;
/// Jobs in the kernel at once.
pub const JOBS_MAX: u32 = 64;
/// Elements of a packet, in bytes: what fits an Ethernet frame with all headers, in whole cache lines.
pub const PAYLOAD_BYTES_MAX: u32 = 1_408;
/// Bytes of a frame that programs look at: headers, payload, and padding up to a cache line. A multiple of 8.
pub const FRAME_BYTES_MAX: usize = 1_600;
/// Versions of slots, of all jobs together: two for each packet of a job's window. 24 MB.
pub const VERSIONS_MAX: u32 = 16_384;

/// Times that the lateness of a sum's last contribution is told apart by.
pub const LATE_LIMITS: usize = 4;

/// Packets at once whose copies have not all left.
pub const COPIES_MAX: u32 = 4_096;
/// Descriptors that a clock packet looks at, at most.
pub const CLOCK_ENTRIES: u32 = 64;
/// A clock packet: a frame that the place of a job and the time in ns are in. Its length in bytes, and where they are.
pub const CLOCK_BYTES: usize = 24;
/// Where the place is.
pub const CLOCK_PLACE: usize = 0;
/// Where the time is.
pub const CLOCK_NOW: usize = 8;

/// Why the program gives a frame of a job in the kernel to the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Up {
    /// The job has left the kernel.
    HandedOver,
    /// A fragment.
    Fragment,
    /// Longer than any packet that the program sums.
    TooLong,
    /// Not from the socket of a rank.
    Stranger,
    /// No packet of this job and system from a worker to its switch.
    Foreign,
    /// Not a contribution.
    Kind,
    /// Its element type and operator are not for the kernel: user space goes on with the job.
    Operator,
    /// Its number is further ahead than the window of its link: user space goes on with the job, and judges.
    Ahead,
}

impl Up {
    /// All of them, by number.
    pub const ALL: &'static [Up] =
        &[Up::HandedOver, Up::Fragment, Up::TooLong, Up::Stranger, Up::Foreign, Up::Kind, Up::Operator, Up::Ahead];

    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Up::HandedOver => "handed_over",
            Up::Fragment => "fragment",
            Up::TooLong => "too_long",
            Up::Stranger => "stranger",
            Up::Foreign => "foreign",
            Up::Kind => "kind",
            Up::Operator => "operator",
            Up::Ahead => "ahead",
        }
    }

    /// Whether the job has to leave the kernel for it: packets of its ranks would be lost otherwise.
    pub const fn takes_job(self) -> bool {
        matches!(self, Up::Fragment | Up::TooLong | Up::Operator | Up::Ahead)
    }
}

/// A job: its number is its place.
pub const JOB: Record = Record {
    name: "fanin_job",
    what: "A job.",
    fields: &[
        // 0 nothing, 1 here, 2 handed over to user space.
        number("state", 4),
        number("epoch", 4),
        number("ranks", 4),
        number("pool", 4),
        // Where its versions begin: version v of slot s is at first + v pool + s.
        number("first", 4),
        number("block_bytes", 4),
        number("rounds_ahead_max", 4),
        number("job", 2),
        number("system", 1),
        // Canary: whether blocks find their descriptors by a hash.
        number("hashed", 1),
        // When somebody contributed last, in ns.
        number("came_at", 8),
        // From how long on a sum that waits for its last contribution is late, in ns.
        array("late_ns", 8, LATE_LIMITS),
        // Canary: how long a block is collected, and a descriptor that was sent on is kept, in ns; how many contributions of a block can come, 0
        // where that is not known; descriptors that are taken.
        number("timeout_ns", 8),
        number("lifetime_ns", 8),
        number("fan_in", 4),
        number("in_use", 4),
        // ATP and A2TP: which nodes are workers, as bits; where the job's servers are, and how many; `timeout_ns` is the time after which an
        // aggregator that nobody has spoken of is free.
        number("workers", 8),
        array("servers", 1, SERVERS_MAX),
        number("server_count", 4),
        number("reserved", 4),
        array("ops", 2, 256),
    ],
};

/// A rank of a job, at 64 job + rank: where it is, and what has passed.
pub const RANK: Record = Record {
    name: "fanin_rank",
    what: "A rank of a job: addresses as they stand in frames to it. The program learns Ethernet addresses and our own IP address.",
    fields: &[
        array("ethernet", 1, 12),
        array("ip", 1, 8),
        array("ports", 1, 4),
        number("ifindex", 4),
        number("next_sequence", 4),
        number("heard", 4),
        number("reserved", 4),
        number("packets_received", 8),
        number("payload_bytes_received", 8),
        number("packets_dropped", 8),
        number("packets_sent", 8),
        number("payload_bytes_sent", 8),
        // Sums that it completed, how long these had nothing else to wait for, and how many waited longer than each of the job's `late_ns`.
        number("completed", 8),
        number("awaited_ns", 8),
        array("late", 8, LATE_LIMITS),
    ],
};

/// Whose packets a socket sends.
pub const MEMBER: Record = Record {
    name: "fanin_member",
    what: "A socket of a rank, as it stands in frames from it.",
    fields: &[number("place", 4), array("ip", 1, 4), array("port", 1, 2), array("reserved", 1, 6)],
};

/// A version of a slot.
pub const VERSION: Record = Record {
    name: "fanin_version",
    what: "A version of a slot.",
    fields: &[
        lock("lock"),
        number("round", 4),
        number("state", 1),
        number("op", 1),
        number("receiver", 2),
        number("fingerprint", 4),
        number("exponent", 2),
        number("bytes", 2),
        number("missing", 4),
        number("arrived", 8),
        number("unsent", 8),
        // Canary: when it is sent on, or given up; the block's leader; contributions, and hosts.
        number("deadline", 8),
        number("leader", 4),
        number("counter", 2),
        number("hosts", 2),
        array("sum", 8, PAYLOAD_BYTES_MAX as usize / 8),
    ],
};

/// Counts of a job: one such value for each processor.
pub const COUNTS: Record = Record {
    name: "fanin_counts",
    what: "Counts of a job.",
    fields: &[
        array("dropped", 8, DropReason::ALL.len()),
        array("up", 8, Up::ALL.len()),
        array("retransmitted", 8, RetransmitReason::ALL.len()),
        array("tallies", 8, Tally::ALL.len()),
    ],
};

/// Which numbers have come from a rank: [`ReplayWindow`].
pub const WINDOW: Record = Record {
    name: "fanin_window",
    what: "Which numbers have come from a rank.",
    fields: &[
        lock("lock"),
        number("upper", 4),
        number("credit", 4),
        number("reserved", 4),
        number("base", 8),
        // One past the last number that has come.
        number("past", 8),
        array("seen", 8, ReplayWindow::WORDS),
    ],
};

/// What time it is for a job.
pub const CLOCK: Record = Record {
    name: "fanin_clock",
    what: "What time it is for a job, in ns, and which descriptor is looked at next.",
    fields: &[number("now", 8), number("cursor", 4), number("reserved", 4)],
};

/// Room for a frame that is looked at: one such value for each processor.
pub const SCRATCH: Record = Record {
    name: "fanin_scratch",
    what: "A frame that is looked at.",
    fields: &[
        array("frame", 1, FRAME_BYTES_MAX),
        array("room", 1, 64),
        // What the program at the entrance has found out, for that of the system: the job's place, the rank, bytes behind the UDP header.
        number("place", 4),
        number("number", 4),
        number("bytes", 4),
        number("reserved", 4),
    ],
};

/// All of them.
pub const RECORDS: &[Record] = &[JOB, RANK, MEMBER, VERSION, WINDOW, CLOCK, COUNTS, SCRATCH];

/// A job's states.
pub const JOB_HERE: u64 = 1;
/// It is user space's.
pub const JOB_HANDED_OVER: u64 = 2;

/// A version's states: holds nothing.
pub const EMPTY: u64 = 0;
/// Some ranks have contributed.
pub const AGGREGATING: u64 = 1;
/// Holds the sum.
pub const DONE: u64 = 2;

/// An operator's word in [`JOB`]'s table: there is one of this number.
pub const OP_IS: u16 = 1;
/// It comes as block fixed point.
pub const OP_FIXED_POINT: u16 = 1 << 1;
/// The program has it.
pub const OP_REDUCES: u16 = 1 << 2;
/// Not even a copy is right: what all have contributed is divided, or the operator is the job's own.
pub const OP_NEVER: u16 = 1 << 3;
/// Two bits from here on: the logarithm to base 2 of the length of an element in bytes.
pub const OP_LENGTH_SHIFT: u16 = 4;
/// Elements are signed, where the order of two of them matters.
pub const OP_SIGNED: u16 = 1 << 6;
/// Of elements of two bytes that are floats: they are the upper half of a binary32.
pub const OP_BFLOAT: u16 = 1 << 7;
/// Bits from here on: the [`Kind`].
pub const OP_KIND_SHIFT: u16 = 8;

/// What is done with two elements: integers, where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The sum, which wraps.
    Sum,
    /// The product, which wraps.
    Prod,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one of them.
    Xor,
    /// Of floats, the smaller one, or a NaN.
    Minimum,
    /// Of floats, the larger one, or a NaN.
    Maximum,
}

impl Kind {
    /// All of them, by number.
    pub const ALL: &'static [Kind] =
        &[Kind::Sum, Kind::Prod, Kind::Min, Kind::Max, Kind::And, Kind::Or, Kind::Xor, Kind::Minimum, Kind::Maximum];

    /// Its name in the header.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Sum => "sum",
            Kind::Prod => "prod",
            Kind::Min => "min",
            Kind::Max => "max",
            Kind::And => "and",
            Kind::Or => "or",
            Kind::Xor => "xor",
            Kind::Minimum => "minimum",
            Kind::Maximum => "maximum",
        }
    }
}
