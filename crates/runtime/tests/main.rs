//! Nodes over sockets on loopback. One program: its parts share most of their code, which takes longer to compile than to run.

mod allreduce;
mod fabric;
mod link;
mod shared;
mod steady;
