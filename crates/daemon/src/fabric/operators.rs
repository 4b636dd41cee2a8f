//! What jobs may reduce by beside operators that are built in: those of a fabric's file, compiled, and those that jobs bring along.

use fanin_control::{JobAnnouncement, OperatorWish};
use fanin_core::DType;
use fanin_fabric::Fabric;
use fanin_operator::{CustomOperator, Faults};
use fanin_plan::operators;

use crate::compile;

/// All operators of a fabric, as one process has them.
#[derive(Clone, Debug, Default)]
pub struct Operators(Vec<(String, CustomOperator)>);

impl Operators {
    /// Reads and compiles all modules.
    ///
    /// # Errors
    /// Which operator and which file, and what is wrong.
    pub fn load(fabric: &Fabric) -> Result<Operators, String> {
        let mut all = Vec::new();
        for operator in fabric.operators() {
            let compiled = operators::read(&operator.file);
            let compiled = compiled.map_err(|why| format!("operator {:?}, {}: expected {why}", operator.name, operator.file.display()))?;
            all.push((operator.name.clone(), compiled));
        }
        Ok(Operators(all))
    }

    /// An operator for elements of a type. That it does what jobs need has been tried by who announces them.
    fn named(&self, name: &str, dtype: DType) -> Result<CustomOperator, String> {
        let found = self.0.iter().find(|(own, _)| own == name).map(|(_, operator)| operator.clone());
        let names = || self.0.iter().map(|(own, _)| own.as_str()).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| format!("an operator of the fabric's file, which has [{}]", names()))?;
        found.for_levels(dtype.bytes()).map_err(|error| format!("an operator that several switches can combine by: {error}"))
    }

    /// Gives an announced job what its operator does, where it names one. `faults` is told why that fails.
    ///
    /// # Errors
    /// Which operator is not here, or is another one here.
    pub fn attach(&self, job: &mut JobAnnouncement, faults: &Faults) -> Result<(), String> {
        let Some(wanted) = &job.operator else { return Ok(()) };
        let operator = self.named(&wanted.name, job.op.dtype).map_err(|why| format!("operator = {:?}: expected {why}", wanted.name))?;
        let own = operator.digest().to_string();
        if own != wanted.sha256 {
            return Err(format!(
                "operator {:?}: its module has sha256 {own} here and {} where the job comes from",
                wanted.name, wanted.sha256
            ));
        }
        job.kernel = Some(operator.payload_op(faults));
        Ok(())
    }
}

/// Gives an announced job the operator that it brings along, which is checked and compiled: within the limits of `fanin_operator`, that takes
/// milliseconds. `faults` is told why it fails.
///
/// # Errors
/// Which operator it is and what is wrong with it, or that this program runs none.
pub(crate) fn bring(job: &mut JobAnnouncement, faults: &Faults) -> Result<(), String> {
    let Some(brought) = &job.operator else { return Ok(()) };
    let wish = OperatorWish { name: brought.name.clone(), digest: brought.sha256.clone(), module: brought.module.clone() };
    let operator = compile::operator(&wish)?;
    let operator = operator.for_levels(job.op.dtype.bytes()).map_err(|error| error.to_string())?;
    job.kernel = Some(operator.payload_op(faults));
    Ok(())
}
