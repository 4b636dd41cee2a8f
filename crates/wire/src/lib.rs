//! Packet formats of Fanin, one file each: a table of the bytes, a checked view over them, a plain header that is passed by value, and
//! golden bytes beside it.
//!
//! Each system has a module of its name. Besides: [`hop`] and [`link`], what two Fanin processes put before every packet, and what neighbours
//! say to each other, which know no protocol; [`stream`], messages in a byte stream that a transparent switch sums (NetReduce over TCP);
//! [`roce`], RoCEv2 as network cards send it; and [`layout`], where fields are, as data: for programs that show packets.
//!
//! Rules for all of them: little-endian, but for [`roce`] and [`netreduce`], whose byte order is the network's; fields at fixed offsets; every reserved bit is zero, or the packet is
//! [`Malformed`](fanin_core::Malformed); bytes from the network never panic. A view (`HopPacket`, `TreePacket`, ...) has
//! checked length, kind and reserved bits when it is made; its accessors only load bytes.
#![forbid(unsafe_code)]

pub mod atp;
mod bytes;
pub mod canary;
pub mod doubling;
pub mod exchange;
pub mod flare;
pub mod hop;
pub mod layout;
pub mod link;
pub mod netreduce;
pub mod panama;
pub mod ps;
pub mod rina;
pub mod ring;
pub mod roce;
pub mod sharp;
pub mod stream;
pub mod switchml;
pub mod tree;
