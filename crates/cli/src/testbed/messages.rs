//! What passes between the testbed and its host processes: one JSON object a line, orders on the process's standard input, reports on its
//! standard output.

use fanin_systems::System;
use serde::{Deserialize, Serialize};

/// A job, as every switch and every worker of it must know it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobAnnouncement {
    /// Its number, from 1.
    pub job: u16,
    /// The system.
    pub system: System,
    /// Names of the workers' hosts, by rank.
    pub hosts: Vec<String>,
    /// Element type, as [`fanin_core::DType::name`] has it.
    pub dtype: String,
    /// Operator, as [`fanin_core::Operator::name`] has it.
    pub operator: String,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most.
    pub window: u32,
    /// Recover from losses.
    pub reliable: bool,
    /// First retransmission timeout.
    pub rto_initial_us: u64,
    /// Lower bound of the retransmission timeout.
    pub rto_min_us: u64,
    /// An operation without progress for so long has failed.
    pub patience_ms: u64,
    /// Seed of the job's random choices.
    pub seed: u64,
}

/// From the testbed to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Be a worker of this job. Answered by [`Report::JobReady`].
    Job(JobSetup),
    /// Make the input of this operation. Answered by [`Report::Prepared`].
    Prepare {
        /// From 0.
        operation: u32,
    },
    /// Run the operation. Answered by [`Report::Finished`], with [`Report::Live`] before it.
    Run,
    /// Compare the output with the sums that it must be. Answered by [`Report::Verified`].
    Verify,
    /// Send a stream from now on, whatever becomes of it. Not answered.
    Stream(StreamSetup),
    /// Send this stream no more. Not answered.
    StopStream {
        /// [`StreamSetup::number`]
        number: u32,
    },
    /// Tell what happened, and end. Answered by [`Report::Statistics`].
    End,
}

/// What a worker is to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobSetup {
    /// The job.
    pub announcement: JobAnnouncement,
    /// The worker.
    pub rank: u32,
    /// Elements of a vector.
    pub elements: u64,
    /// Seed of the vectors.
    pub seed: u64,
}

/// What a stream is to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamSetup {
    /// Its number in the workload.
    pub number: u32,
    /// Name of the host that receives.
    pub to: String,
    /// On the wire, counted as the fabric counts.
    pub bits_per_second: u64,
    /// Payload of a packet in bytes.
    pub payload_bytes: u32,
    /// Name of the switch above the leaf that it takes.
    pub via: Option<String>,
}

/// How an operation ended at a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Complete.
    Done,
    /// Not complete.
    Failed {
        /// The reason in words.
        text: String,
        /// The rank that is missing, where it is known.
        suspect_rank: Option<u32>,
    },
}

/// From a host to the testbed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The socket is bound, and the neighbour has answered. Comes unasked, once.
    Up,
    /// Packets of the job are answered from now on.
    JobReady,
    /// The input is made.
    Prepared,
    /// How far the operation is. Comes unasked, at least every 50 ms while one runs.
    Live {
        /// The part of the result that is here, from 0 to 1.
        done: f64,
    },
    /// The operation has ended.
    Finished {
        /// From its beginning at this worker to its end.
        seconds: f64,
        /// CPU time of the process meanwhile.
        cpu_seconds: f64,
        /// How.
        ended: Ended,
    },
    /// The output is compared.
    Verified {
        /// Elements that are not what they must be.
        wrong: u64,
        /// The first of them.
        first_wrong: Option<u64>,
    },
    /// What happened since the start.
    Statistics(HostStatistics),
}

/// Names and counts; zeros may be left out.
pub type Counts = Vec<(String, u64)>;

/// What happened at a host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatistics {
    /// CPU time of the process, all of it.
    pub cpu_seconds: f64,
    /// Packets of the job.
    pub packets_sent: u64,
    /// Packets of the job.
    pub packets_received: u64,
    /// Packets sent again, by reason.
    pub retransmitted: Counts,
    /// Packets dropped, by reason.
    pub dropped: Counts,
    /// Injected faults, by kind.
    pub injected: Counts,
    /// What the system itself counts: blocks issued again by generation, blocks summed by hosts.
    pub protocol: Counts,
    /// Streams that it sent.
    pub streams_sent: Vec<StreamCount>,
    /// Packets of streams that it received.
    pub stream_packets_received: u64,
    /// Payload of them.
    pub stream_bytes_received: u64,
}

/// What was sent of a stream.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StreamCount {
    /// [`StreamSetup::number`]
    pub number: u32,
    /// Packets.
    pub packets: u64,
    /// Payload of them.
    pub bytes: u64,
}
