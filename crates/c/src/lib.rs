//! The communicator for C, C++, Fortran and whatever calls C: `libfanin` and `fanin.h`.
//!
//! Every function gives a [`Status`](errors::Status); what went wrong is said by [`fanin_error`](errors::fanin_error) and
//! [`fanin_error_rank`](errors::fanin_error_rank) in the thread that has called. No panic crosses the border: it is `FANIN_ERR_INTERNAL`.
//!
//! | module | what it holds |
//! |---|---|
//! | `errors` | statuses, and the last error of a thread |
//! | `types` | element types and operators by number |
//! | `settings` | who takes part and where ranks meet, in place of the environment's variables |
//! | `communicator` | joining, groups, leaving; what a communicator says of itself |
//! | `collectives` | the collectives |
//! | `requests` | calls in the background |

pub mod collectives;
pub mod communicator;
pub mod errors;
pub mod requests;
pub mod settings;
pub mod types;
