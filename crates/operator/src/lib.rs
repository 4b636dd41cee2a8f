//! Operators that a job brings along, as WebAssembly: a small kernel in C, Rust or anything else that compiles to wasm32, run in a sandbox
//! by whoever reduces - the switch, or ranks that share memory.
//!
//! | module | what it holds |
//! |---|---|
//! | [`limits`] | how large, how hungry and how slow a module may be |
//! | [`CustomOperator`] | a module that was checked and compiled, with its name and its digest |
//! | [`examine`] | what an operator does in a job, tried before one depends on it |
//! | `admission` | what is looked at before anything is compiled |
//! | `program` | a compiled module, and its instances |
//! | `kernel` | an instance as [`fanin_core::CustomKernel`], and why it failed |
//!
//! # What a module exports
//!
//! | export | type | |
//! |---|---|---|
//! | `memory` | memory | its one linear memory, which may grow |
//! | `fanin_abi` | `() -> i32` | gives 1, the version of this table |
//! | `element_bytes` | `() -> i32` | bytes of an element as ranks give and get it |
//! | `accumulator_bytes` | `() -> i32` | bytes that accumulate an element; may be missing, and is `element_bytes` then |
//! | `init` | `(acc, in, n: i32)` | `acc[i] := in[i]`, the first contribution; a copy where it is missing |
//! | `combine` | `(acc, in, n: i32)` | `acc[i] := acc[i] + in[i]` |
//! | `finish` | `(acc, out, n, workers: i32)` | `out[i] :=` the result of `acc[i]`, which holds what all `workers` ranks have contributed; a copy where it is missing |
//!
//! `acc`, `in` and `out` are addresses in the module's memory, multiples of 16, of `n` elements (or accumulators) of a whole packet or
//! more; they do not overlap, except that `out` is `acc` where accumulators are elements. A module whose accumulators are longer than its
//! elements must have both `init` and `finish`.
//!
//! An operator must be commutative and associative: contributions are combined in the order in which they arrive. It should depend on
//! nothing but its arguments: a rank or a switch calls one instance for all blocks, in any order.
#![forbid(unsafe_code)]

#[cfg(feature = "wasm")]
mod admission;
mod error;
mod examination;
mod identity;
pub mod limits;
mod operator;
#[cfg(feature = "wasm")]
mod program;
#[cfg(not(feature = "wasm"))]
#[path = "absent.rs"]
mod program;
mod stray;

/// For a program that handles `SIGSEGV`, `SIGFPE`, `SIGILL` and `SIGBUS` nowhere else: what is wrong with an operator's access to its memory is
/// found by the processor, which makes operators faster. To be called before the first module is compiled; without effect after that.
pub fn find_traps_by_signals() {
    program::find_traps_by_signals();
}

pub use error::OperatorError;
pub use examination::{Broken, Examined, Order, Trying, examine};
pub use identity::{Digest, Faults};
pub use operator::CustomOperator;
