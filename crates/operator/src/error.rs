//! Why a module is refused.

use crate::limits;

/// Why a module is no operator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperatorError {
    /// The name is empty, too long, or cannot be printed.
    #[error("operator name {0:?}: expected 1 to {max} printable characters", max = limits::NAME_CHARS_MAX)]
    Name(String),
    /// More bytes than a module may have.
    #[error("operator `{name}`: its module has {bytes} bytes, and may have {max}", max = limits::MODULE_BYTES_MAX)]
    TooLarge {
        /// Whose.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// Not WebAssembly, or not of the kind that is run here.
    #[error("operator `{name}`: its module is not valid: {reason}")]
    Invalid {
        /// Whose.
        name: String,
        /// What the parser, the validator or the compiler said.
        reason: String,
    },
    /// More of something than a module may have.
    #[error("operator `{name}`: {what} = {got}: expected at most {max}")]
    Limit {
        /// Whose.
        name: String,
        /// Of what.
        what: &'static str,
        /// How much it has.
        got: u64,
        /// How much it may have.
        max: u64,
    },
    /// It wants something from outside.
    #[error("operator `{name}`: it imports `{module}.{import}`: expected no imports at all")]
    Imports {
        /// Whose.
        name: String,
        /// From where.
        module: String,
        /// What.
        import: String,
    },
    /// An export is missing or has another type.
    #[error("operator `{name}`: export `{export}`: expected {expected}, got {got}")]
    Export {
        /// Whose.
        name: String,
        /// Which one.
        export: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// It says a length, or a version, that makes no sense here.
    #[error("operator `{name}`: {what} = {got}: expected {expected}")]
    Value {
        /// Whose.
        name: String,
        /// What says so.
        what: &'static str,
        /// What it says.
        got: i64,
        /// What would make sense.
        expected: String,
    },
    /// It cannot be brought to life, or fails before anything is reduced.
    #[error("operator `{name}`: {reason}")]
    Failed {
        /// Whose.
        name: String,
        /// How.
        reason: String,
    },
    /// This build has no WebAssembly in it.
    #[error("operator `{name}`: this build of Fanin runs no custom operators: it was built without the feature `wasm`")]
    Absent {
        /// Whose.
        name: String,
    },
}
