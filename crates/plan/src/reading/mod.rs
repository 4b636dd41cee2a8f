//! Reading: from a text to values that know where they came from, and to errors that lead there.
//!
//! | module | what it holds |
//! |---|---|
//! | [`origin`] | where a value came from |
//! | [`tree`] | values that know their line |
//! | [`read`](mod@read) | typed values out of a tree, with the path in every error |
//! | [`units`] | how quantities are written |
//! | `errors` | file, line, key, value, what was expected |
//! | `refuse` | errors that lead to a key |
//! | [`files`] | files that plans name |
//! | [`size`] | how much there may be of what |

mod errors;
pub mod files;
pub mod origin;
pub mod read;
mod refuse;
pub mod size;
pub mod tree;
pub mod units;

pub use errors::PlanError;
pub use refuse::Refuse;
