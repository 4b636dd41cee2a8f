//! `fanin._native`: what of Fanin's Python package is written in Rust.
//!
//! | module | what it holds |
//! |---|---|
//! | `communicator` | `Communicator`: collectives over memory at given addresses |
//! | `handle` | `Handle`: calls in the background |
//! | `sparse` | `SparseResult`: results of sparse allreduces |
//! | `host` | `Host`: a switch in this process |
//! | `given` | plans and their like: dictionaries, texts and files |
//! | `watch` | long work, while this thread listens to signals |
//! | `simulate` | `simulate`: plans, run by the code of `fanin sim` |
//! | `elsewhere` | `run_part`, `Sweep`: runs that other processes and machines compute |
//! | `repro` | `repro`: papers' figures, by the code of `fanin repro` |
//! | `testbed` | `testbed`: workloads on real processes, by the code of `fanin testbed` |
//! | `advise` | `advise`: which switches to buy, by the code of `fanin advise` |
//! | `table` | `Table`: results as Arrow tables |
//! | `operator` | `CustomOperator`: operators that jobs bring along |
//! | `settings` | keyword arguments and the environment become a configuration |
//! | `memory` | addresses become slices: all that is `unsafe` here |
//! | `interrupt` | Ctrl-C ends waiting |
//! | `errors` | errors become exceptions |
//!
//! Everything that users see is in the package around it, `python/fanin`; names and types here are in `python/fanin/_native.pyi`.

use pyo3::prelude::*;

mod advise;
mod communicator;
mod elsewhere;
mod errors;
mod given;
mod handle;
mod host;
mod interrupt;
mod memory;
mod operator;
mod repro;
mod settings;
mod simulate;
mod sparse;
mod table;
mod testbed;
mod watch;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::advise::advise;
    #[pymodule_export]
    use crate::communicator::Communicator;
    #[pymodule_export]
    use crate::elsewhere::Sweep;
    #[pymodule_export]
    use crate::elsewhere::run_part;
    #[pymodule_export]
    use crate::elsewhere::sweep;
    #[pymodule_export]
    use crate::handle::Handle;
    #[pymodule_export]
    use crate::host::Host;
    #[pymodule_export]
    use crate::operator::CustomOperator;
    #[pymodule_export]
    use crate::repro::Reproduction;
    #[pymodule_export]
    use crate::repro::papers;
    #[pymodule_export]
    use crate::repro::repro;
    #[pymodule_export]
    use crate::simulate::Results;
    #[pymodule_export]
    use crate::simulate::simulate;
    #[pymodule_export]
    use crate::sparse::SparseResult;
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::testbed::TestbedResults;
    #[pymodule_export]
    use crate::testbed::testbed;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
