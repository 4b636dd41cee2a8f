//! For random traces the packets that come out of the programs in the kernel are those of the state machines, byte for byte, and so are the
//! reasons of what they drop; and where user space goes on with a job, it goes on as if it had had it from the beginning. A trace that shows a
//! difference is shrunk.
#![cfg(feature = "kernel")]

mod atp;
mod canary;
#[path = "../common/mod.rs"]
mod common;
mod mistakes;
mod pair;
mod routed;
mod switchml;
mod trace;
mod tree;
