//! An instance as a kernel: payloads go in, are worked on by one call each, and come out.

use std::fmt;

use fanin_core::{CustomKernel, CustomLayout, OpError};

use super::{Instance, Program, why};
use crate::identity::{Digest, Faults};
use crate::limits;

/// One instance of a module, made at the first use. Whatever fails ends it: every later call gives the same error.
pub(crate) struct WasmKernel {
    program: Program,
    name: String,
    digest: Digest,
    faults: Faults,
    instance: Option<Instance>,
    failed: bool,
}

impl fmt::Debug for WasmKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WasmKernel({})", self.name)
    }
}

impl WasmKernel {
    pub(crate) fn new(program: Program, name: &str, digest: Digest, faults: Faults) -> Self {
        WasmKernel { program, name: name.into(), digest, faults, instance: None, failed: false }
    }

    /// Does something with the instance.
    #[inline]
    fn run(
        &mut self,
        what: &str,
        elements: usize,
        act: impl FnOnce(&mut Instance, CustomLayout) -> Result<(), String>,
    ) -> Result<(), OpError> {
        if self.failed {
            return Err(OpError::Operator);
        }
        let layout = self.program.layout();
        let result = match &mut self.instance {
            Some(instance) if instance.capacity >= elements => Ok(instance),
            _ => self.prepare(elements),
        };
        let result = result.and_then(|instance| {
            instance.given = 0;
            act(instance, layout)?;
            Ok(instance.given.saturating_sub(instance.store.get_fuel().unwrap_or(0)))
        });
        let result = result.map(|fuel| self.faults.burn(fuel));
        result.map_err(|reason| self.fail(what, elements, &reason))
    }

    /// Makes the instance, or room in it.
    #[cold]
    fn prepare(&mut self, elements: usize) -> Result<&mut Instance, String> {
        let layout = self.program.layout();
        let instance = match self.instance.take() {
            Some(instance) => instance,
            None => Instance::new(&self.program)?,
        };
        let instance = self.instance.insert(instance);
        instance.make_room(&layout, elements)?;
        Ok(instance)
    }

    #[cold]
    fn fail(&mut self, what: &str, elements: usize, reason: &str) -> OpError {
        self.failed = true;
        // Its memory is of no use any more.
        self.instance = None;
        let digest = self.digest.short();
        self.faults.tell(format!("operator `{}` (sha256 {digest:016x}..) failed in {what} of {elements} elements: {reason}", self.name));
        OpError::Operator
    }
}

/// What a call of an export gives, in words where it fails.
fn told(result: wasmtime::Result<()>, fuel: u64) -> Result<(), String> {
    result.map_err(|error| why(&error, fuel))
}

/// What a call may use.
fn give(instance: &mut Instance, fuel: u64) -> Result<(), String> {
    instance.given = fuel;
    told(instance.store.set_fuel(fuel), fuel)
}

/// Both are in bounds: see [`Instance::make_room`], and memories never shrink.
#[inline]
fn put(instance: &mut Instance, at: usize, bytes: &[u8]) {
    instance.memory.data_mut(&mut instance.store)[at..][..bytes.len()].copy_from_slice(bytes);
}

#[inline]
fn get(instance: &Instance, at: usize, bytes: &mut [u8]) {
    bytes.copy_from_slice(&instance.memory.data(&instance.store)[at..][..bytes.len()]);
}

impl CustomKernel for WasmKernel {
    fn layout(&self) -> CustomLayout {
        self.program.layout()
    }

    fn identity(&self) -> u64 {
        self.digest.short()
    }

    fn begin(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        let elements = input.len() / self.program.layout().element_bytes;
        self.run("init", elements, |instance, _| {
            let Some(init) = instance.init.clone() else {
                accumulator.copy_from_slice(input);
                return Ok(());
            };
            let (acc, from, fuel) = (instance.accumulators_at, instance.inputs_at, limits::fuel(input.len()));
            put(instance, from, input);
            give(instance, fuel)?;
            told(init.call(&mut instance.store, (acc as u32, from as u32, elements as u32)), fuel)?;
            get(instance, acc, accumulator);
            Ok(())
        })
    }

    #[inline]
    fn combine(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        let elements = input.len() / self.program.layout().element_bytes;
        self.run("combine", elements, |instance, _| {
            let (acc, from, fuel) = (instance.accumulators_at, instance.inputs_at, limits::fuel(input.len()));
            let memory = instance.memory.data_mut(&mut instance.store);
            memory[acc..][..accumulator.len()].copy_from_slice(accumulator);
            memory[from..][..input.len()].copy_from_slice(input);
            give(instance, fuel)?;
            told(instance.combine.call(&mut instance.store, (acc as u32, from as u32, elements as u32)), fuel)?;
            get(instance, acc, accumulator);
            Ok(())
        })
    }

    fn finish(&mut self, beside: Option<&[u8]>, result: &mut [u8], workers: u32) -> Result<(), OpError> {
        let elements = result.len() / self.program.layout().element_bytes;
        self.run("finish", elements, |instance, layout| {
            let Some(finish) = instance.finish.clone() else { return Ok(()) };
            let (acc, fuel) = (instance.accumulators_at, limits::fuel(result.len()));
            put(instance, acc, beside.unwrap_or(result));
            let out = if layout.is_beside() { instance.inputs_at } else { acc };
            give(instance, fuel)?;
            told(finish.call(&mut instance.store, (acc as u32, out as u32, elements as u32, workers)), fuel)?;
            get(instance, out, result);
            Ok(())
        })
    }

    fn finishes(&self) -> bool {
        self.program.finishes()
    }

    fn fork(&self) -> Box<dyn CustomKernel> {
        Box::new(WasmKernel::new(self.program.share(), &self.name, self.digest, self.faults.clone()))
    }
}
