//! A module that was checked and compiled.

use std::fmt;
use std::sync::Arc;

use fanin_core::{CustomLayout, CustomOp, PayloadOp};

use crate::error::OperatorError;
use crate::identity::{Digest, Faults};
use crate::limits;
use crate::program::Program;
use crate::stray::Stray;

/// An operator: a WebAssembly module that has been checked and compiled. Cheap to clone.
#[derive(Clone)]
pub struct CustomOperator(Arc<Inner>);

struct Inner {
    name: String,
    digest: Digest,
    module: Vec<u8>,
    program: Program,
}

impl fmt::Debug for CustomOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomOperator")
            .field("name", &self.name())
            .field("digest", &self.digest())
            .field("layout", &self.layout())
            .finish()
    }
}

/// Equal where modules are, whatever they are called.
impl PartialEq for CustomOperator {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for CustomOperator {}

impl CustomOperator {
    /// Checks and compiles a module in WebAssembly's binary format. `name` is for messages. Takes milliseconds, and memory in proportion to
    /// the module's length, whatever the bytes are.
    ///
    /// # Errors
    /// [`OperatorError`] names the operator, what is wrong with it, and what was expected.
    pub fn from_wasm(name: &str, module: &[u8]) -> Result<Self, OperatorError> {
        if name.is_empty() || name.chars().count() > limits::NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(OperatorError::Name(name.into()));
        }
        if module.len() > limits::MODULE_BYTES_MAX {
            return Err(OperatorError::TooLarge { name: name.into(), bytes: module.len() });
        }
        let program = Program::compile(name, module)?;
        Ok(CustomOperator(Arc::new(Inner { name: name.into(), digest: Digest::of(module), module: module.into(), program })))
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What tells it from others.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The module's bytes.
    pub fn module(&self) -> &[u8] {
        &self.0.module
    }

    /// Lengths of its elements and accumulators.
    pub fn layout(&self) -> CustomLayout {
        self.0.program.layout()
    }

    /// Whether it makes the result of an accumulator by itself, rather than by a copy.
    pub fn finishes(&self) -> bool {
        self.0.program.finishes()
    }

    /// The same operator for elements of `element_bytes` bytes, or an error: what a caller's vector consists of must be what the module
    /// takes it for.
    ///
    /// # Errors
    /// [`OperatorError::Value`] names both lengths.
    pub fn for_elements_of(self, element_bytes: usize) -> Result<Self, OperatorError> {
        let got = self.layout().element_bytes;
        if got == element_bytes {
            return Ok(self);
        }
        let expected = format!("{element_bytes}, the length of the vector's elements");
        Err(OperatorError::Value { name: self.name().into(), what: "element_bytes", got: got as i64, expected })
    }

    /// The same operator for sums at several levels of switches, whose packets carry elements of `element_bytes` bytes one by one; or an error.
    /// What a switch has summed is a contribution to the switch above it: so elements must be what is accumulated, with nothing before and
    /// after that.
    ///
    /// # Errors
    /// [`OperatorError::Value`] or [`OperatorError::Export`] names what is in the way.
    pub fn for_levels(self, element_bytes: usize) -> Result<Self, OperatorError> {
        let operator = self.for_elements_of(element_bytes)?;
        let (name, layout) = (|| operator.name().to_owned(), operator.layout());
        let none = "none: what one switch has combined is a contribution to the next one";
        if layout.is_beside() {
            let expected = format!("{}, the length of an element: switches send each other what they have combined", layout.element_bytes);
            return Err(OperatorError::Value { name: name(), what: "accumulator_bytes", got: layout.accumulator_bytes as i64, expected });
        }
        let exports = [("init", operator.0.program.begins()), ("finish", operator.finishes())];
        match exports.into_iter().find(|(_, is_there)| *is_there) {
            Some((export, _)) => Err(OperatorError::Export { name: name(), export, expected: none, got: "a function".into() }),
            None => Ok(operator),
        }
    }

    /// Whether it writes beside the elements that a call is for.
    pub(crate) fn stray(&self, contributions: [&[u8]; 2]) -> Option<Stray> {
        self.0.program.stray(contributions)
    }

    /// The operator at work, for one thread: `faults` is told why where it fails. Its memory is taken at the first use.
    pub fn op(&self, faults: &Faults) -> CustomOp {
        CustomOp(self.0.program.kernel(&self.0.name, self.0.digest, faults))
    }

    /// As [`CustomOperator::op`], as what packets are reduced by.
    pub fn payload_op(&self, faults: &Faults) -> PayloadOp {
        PayloadOp::Custom(self.op(faults))
    }
}
