//! What is looked at before anything is compiled: what compiling costs is bounded by what is counted here.

use wasmparser::{Parser, Payload, Validator, WasmFeatures};

use crate::error::OperatorError;
use crate::limits;

/// What a module may use: what compilers to wasm32 use today, without threads, exceptions and anything whose result may differ from one
/// machine to another (relaxed SIMD).
pub(crate) fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::CALL_INDIRECT_OVERLONG
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::BULK_MEMORY_OPT
        | WasmFeatures::SIMD
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::FLOATS
        | WasmFeatures::GC_TYPES
}

/// Validates a module and counts what it has.
///
/// # Errors
/// [`OperatorError::Invalid`], or the first [`OperatorError::Limit`] that it is over.
pub(crate) fn check(name: &str, module: &[u8]) -> Result<(), OperatorError> {
    let invalid = |error: wasmparser::BinaryReaderError| OperatorError::Invalid { name: name.into(), reason: error.to_string() };
    count(name, module).map_err(invalid)??;
    Validator::new_with_features(features()).validate_all(module).map_err(invalid)?;
    Ok(())
}

fn count(name: &str, module: &[u8]) -> wasmparser::Result<Result<(), OperatorError>> {
    let limit = |what, got: u64, max: u64| {
        if got <= max { Ok(()) } else { Err(OperatorError::Limit { name: name.into(), what, got, max }) }
    };
    for payload in Parser::new(0).parse_all(module) {
        let within = match payload? {
            Payload::FunctionSection(functions) => limit("functions", functions.count().into(), limits::FUNCTIONS_MAX.into()),
            Payload::CodeSectionEntry(body) => {
                let mut locals = 0u64;
                for group in body.get_locals_reader()? {
                    locals += u64::from(group?.0);
                }
                limit("local variables of a function", locals, limits::LOCALS_MAX.into())
                    .and_then(|()| limit("bytes of a function", body.range().len() as u64, limits::FUNCTION_BYTES_MAX as u64))
            }
            Payload::TypeSection(types) => limit("types", types.count().into(), limits::FUNCTIONS_MAX.into()),
            Payload::TableSection(tables) => limit("tables", tables.count().into(), 1),
            Payload::MemorySection(memories) => limit("memories", memories.count().into(), 1),
            _ => Ok(()),
        };
        if within.is_err() {
            return Ok(within);
        }
    }
    Ok(Ok(()))
}
