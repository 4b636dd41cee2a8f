//! Why a collective of whole vectors stops.

use fanin_runtime::RunError;

use crate::error::CommError;

/// Where a call stops.
pub(crate) enum Stop {
    Run(RunError),
    /// An operator of the job's own has failed, in words.
    Operator(String),
    /// The path does not carry the call any more, for this reason.
    Path(CommError),
    /// The job cannot go on anywhere.
    Failed(CommError),
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Stop::Run(error)
    }
}
