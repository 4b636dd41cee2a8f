//! The simulator packet by packet. One program: its parts share most of their code, which takes longer to compile than to run.

mod couriers;
mod dctcp;
mod exact;
mod faults;
mod limits;
mod lossless;
mod lossless_limits;
mod lossy;
mod made_packets;
mod parts;
mod results;
mod routes;
mod trace;
mod trimming;
