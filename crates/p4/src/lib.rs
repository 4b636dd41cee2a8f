//! Switches as P4 programs (`dataplanes/p4`), and what holds them against the protocols' state machines.
//!
//! | module | what it is |
//! |---|---|
//! | [`formats`] | packets as the papers have them, as tables of fields: codecs between their bytes and the protocols' messages |
//! | [`frames`] | Ethernet, IPv4 and UDP around them |
//! | [`generated`] | headers and constants of the programs, made from those tables; a test fails where the file beside the programs is stale |
//! | [`control`] | the control plane: table entries and multicast groups from a job configuration |
//! | [`dpdk`] | the same switches for DPDK's software pipeline |
//! | [`groups`] | multicast groups by shards of ports (Canary 4.2) |
//! | [`golden`] | random traces through the state machines: packets in and packets out, by port |
//! | [`pcap`] | files of captured packets |
//!
//! A paper's format lacks fields of Fanin's own messages, and the other way round. What a codec does about that is in its module.
#![forbid(unsafe_code)]

pub mod control;
pub mod dpdk;
pub mod formats;
pub mod frames;
pub mod generated;
pub mod golden;
pub mod groups;
pub mod pcap;
