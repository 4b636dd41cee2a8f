//! A compiled module, and its instances.

mod kernel;
mod strays;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fanin_core::{CustomKernel, CustomLayout};
use wasmtime::{
    Config, Engine, Extern, ExternType, Instance as WasmInstance, Memory, Module, OptLevel, Store, StoreLimits, StoreLimitsBuilder, Trap,
    TypedFunc, ValType,
};

use crate::admission;
use crate::error::OperatorError;
use crate::identity::{Digest, Faults};
use crate::limits;
use kernel::WasmKernel;

/// The version of what modules export.
const ABI: i32 = 1;
const PAGE_BYTES: usize = 64 << 10;

/// Whether traps are found by signals.
static SIGNALS: AtomicBool = AtomicBool::new(false);

/// See [`find_traps_by_signals`](crate::find_traps_by_signals).
pub(crate) fn find_traps_by_signals() {
    SIGNALS.store(true, Ordering::Relaxed);
}

/// `(acc, in, n)`.
pub(crate) type Step = TypedFunc<(u32, u32, u32), ()>;
/// `(acc, out, n, workers)`.
pub(crate) type Finish = TypedFunc<(u32, u32, u32, u32), ()>;

/// The exports, their types, whether they must be there, and how that is said.
const EXPORTS: [(&str, usize, usize, bool, &str); 6] = [
    ("fanin_abi", 0, 1, true, "a function () -> i32"),
    ("element_bytes", 0, 1, true, "a function () -> i32"),
    ("accumulator_bytes", 0, 1, false, "a function () -> i32"),
    ("init", 3, 0, false, "a function (i32, i32, i32) without result"),
    ("combine", 3, 0, true, "a function (i32, i32, i32) without result"),
    ("finish", 4, 0, false, "a function (i32, i32, i32, i32) without result"),
];

/// A module that was checked and compiled.
pub(crate) struct Program {
    module: Module,
    layout: CustomLayout,
    finishes: bool,
    /// Whether it makes an accumulator of a first contribution by itself, rather than by a copy.
    begins: bool,
}

/// One engine for all: it holds the compiler's settings.
///
/// In the processes of users traps are found by checks in the code rather than by signals: their handlers of `SIGSEGV` (a debugger's, Python's
/// `faulthandler`) would otherwise see what is ours. In programs of our own an access that is out of bounds meets pages that nobody may
/// touch, which costs nothing where it is in bounds.
fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let make = || {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .cranelift_opt_level(OptLevel::Speed)
            .max_wasm_stack(limits::STACK_BYTES_MAX)
            .signals_based_traps(SIGNALS.load(Ordering::Relaxed))
            .wasm_relaxed_simd(false)
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .wasm_tail_call(false);
        Engine::new(&config).map_err(|error| format!("{error:#}"))
    };
    ENGINE.get_or_init(make).as_ref().map_err(Clone::clone)
}

impl Program {
    /// Checks and compiles.
    pub(crate) fn compile(name: &str, module: &[u8]) -> Result<Self, OperatorError> {
        admission::check(name, module)?;
        let failed = |reason: String| OperatorError::Failed { name: name.into(), reason };
        let module = Module::new(engine().map_err(failed)?, module)
            .map_err(|error| OperatorError::Invalid { name: name.into(), reason: format!("{error:#}") })?;
        check_exports(name, &module)?;
        let mut program =
            Program { layout: CustomLayout { element_bytes: 1, accumulator_bytes: 1 }, finishes: false, begins: false, module };
        let mut instance = Instance::new(&program).map_err(failed)?;
        program.layout = instance.layout(name)?;
        same_again(name, program.layout, instance.layout(name)?)?;
        program.finishes = program.module.get_export("finish").is_some();
        program.begins = program.module.get_export("init").is_some();
        Ok(program)
    }

    pub(crate) fn layout(&self) -> CustomLayout {
        self.layout
    }

    pub(crate) fn finishes(&self) -> bool {
        self.finishes
    }

    pub(crate) fn begins(&self) -> bool {
        self.begins
    }

    pub(crate) fn kernel(&self, name: &str, digest: Digest, faults: &Faults) -> Box<dyn CustomKernel> {
        let program = self.share();
        Box::new(WasmKernel::new(program, name, digest, faults.clone()))
    }

    /// A copy that shares the compiled code.
    pub(crate) fn share(&self) -> Self {
        Program { module: self.module.clone(), ..*self }
    }
}

/// Whether a module has what the table says, with the types that it says, and wants nothing.
fn check_exports(name: &str, module: &Module) -> Result<(), OperatorError> {
    if let Some(import) = module.imports().next() {
        let (module, import) = (import.module().into(), import.name().into());
        return Err(OperatorError::Imports { name: name.into(), module, import });
    }
    let wrong = |export, expected, got| Err(OperatorError::Export { name: name.into(), export, expected, got });
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) => {
            let got = memory.minimum().saturating_mul(PAGE_BYTES as u64);
            let max = limits::MEMORY_BYTES_MAX as u64;
            if got > max {
                return Err(OperatorError::Limit { name: name.into(), what: "bytes of memory", got, max });
            }
        }
        other => return wrong("memory", "a memory", describe(other.as_ref())),
    }
    for (export, parameters, results, required, expected) in EXPORTS {
        let found = module.get_export(export);
        let fits = match &found {
            None => !required,
            Some(ExternType::Func(function)) => {
                let is_i32 = |ty: ValType| matches!(ty, ValType::I32);
                function.params().len() == parameters
                    && function.results().len() == results
                    && function.params().all(is_i32)
                    && function.results().all(is_i32)
            }
            Some(_) => false,
        };
        if !fits {
            return wrong(export, expected, describe(found.as_ref()));
        }
    }
    Ok(())
}

/// Lengths that change from call to call would be others at each rank and switch.
fn same_again(name: &str, first: CustomLayout, again: CustomLayout) -> Result<(), OperatorError> {
    let lengths = [
        ("element_bytes", first.element_bytes, again.element_bytes),
        ("accumulator_bytes", first.accumulator_bytes, again.accumulator_bytes),
    ];
    match lengths.into_iter().find(|(_, first, again)| first != again) {
        None => Ok(()),
        Some((what, first, again)) => {
            let expected = format!("{first} as in the call before: lengths never change");
            Err(OperatorError::Value { name: name.into(), what, got: again as i64, expected })
        }
    }
}

fn describe(export: Option<&ExternType>) -> String {
    match export {
        None => "nothing".into(),
        Some(ExternType::Func(function)) => {
            let list = |types: Vec<String>| types.join(", ");
            let results = match function.results().len() {
                0 => "without result".into(),
                _ => format!("-> {}", list(function.results().map(|ty| ty.to_string()).collect())),
            };
            format!("a function ({}) {results}", list(function.params().map(|ty| ty.to_string()).collect()))
        }
        Some(ExternType::Memory(_)) => "a memory".into(),
        Some(ExternType::Table(_)) => "a table".into(),
        Some(_) => "something else".into(),
    }
}

/// A module at work.
pub(crate) struct Instance {
    pub(crate) store: Store<StoreLimits>,
    pub(crate) memory: Memory,
    instance: WasmInstance,
    pub(crate) init: Option<Step>,
    pub(crate) combine: Step,
    pub(crate) finish: Option<Finish>,
    /// Where accumulators, and where inputs, are put: pages of the host's own, behind those that the module had at first.
    pub(crate) accumulators_at: usize,
    pub(crate) inputs_at: usize,
    /// How many elements there is room for.
    pub(crate) capacity: usize,
    /// How much fuel the present call was given.
    pub(crate) given: u64,
}

impl Instance {
    /// Brings a module to life.
    pub(crate) fn new(program: &Program) -> Result<Self, String> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(limits::MEMORY_BYTES_MAX)
            .table_elements(limits::TABLE_ENTRIES_MAX)
            .instances(1)
            .memories(1)
            .tables(1)
            .build();
        let mut store = Store::new(program.module.engine(), limits);
        store.limiter(|limits| limits);
        let text = |error: wasmtime::Error| format!("it cannot be started: {}", why(&error, limits::FUEL_BASE));
        store.set_fuel(limits::FUEL_BASE).map_err(text)?;
        let instance = WasmInstance::new(&mut store, &program.module, &[]).map_err(text)?;
        let memory = instance.get_export(&mut store, "memory").and_then(Extern::into_memory).ok_or("it has no memory")?;
        let init = optional(&instance, &mut store, "init").map_err(text)?;
        let finish = match instance.get_func(&mut store, "finish") {
            Some(function) => Some(function.typed(&store).map_err(text)?),
            None => None,
        };
        let combine = instance.get_typed_func(&mut store, "combine").map_err(text)?;
        Ok(Instance { store, memory, instance, init, combine, finish, accumulators_at: 0, inputs_at: 0, capacity: 0, given: 0 })
    }

    /// Asks it for the version of what it exports and for its lengths.
    fn layout(&mut self, name: &str) -> Result<CustomLayout, OperatorError> {
        let abi = self.ask(name, "fanin_abi")?.unwrap_or_default();
        let value = |what, got: i32, expected: String| Err(OperatorError::Value { name: name.into(), what, got: got.into(), expected });
        if abi != ABI {
            return value("fanin_abi", abi, format!("{ABI}, the version that this release of Fanin runs"));
        }
        let element = self.ask(name, "element_bytes")?.unwrap_or_default();
        if !(1..=limits::ELEMENT_BYTES_MAX as i32).contains(&element) {
            return value("element_bytes", element, format!("1 to {}", limits::ELEMENT_BYTES_MAX));
        }
        let accumulator = self.ask(name, "accumulator_bytes")?.unwrap_or(element);
        let most = element * limits::ACCUMULATOR_FACTOR_MAX as i32;
        if !(1..=most).contains(&accumulator) {
            return value("accumulator_bytes", accumulator, format!("1 to {most}, {} times element_bytes", limits::ACCUMULATOR_FACTOR_MAX));
        }
        let missing = |export, expected| Err(OperatorError::Export { name: name.into(), export, expected, got: "nothing".into() });
        const NEEDED: &str = "a function, since accumulators are not elements";
        match (accumulator == element, &self.init, &self.finish) {
            (false, None, _) => missing("init", NEEDED),
            (false, _, None) => missing("finish", NEEDED),
            _ => Ok(CustomLayout { element_bytes: element as usize, accumulator_bytes: accumulator as usize }),
        }
    }

    /// Calls a function without arguments, if it is there.
    fn ask(&mut self, name: &str, export: &'static str) -> Result<Option<i32>, OperatorError> {
        let failed = |error: wasmtime::Error| OperatorError::Failed {
            name: name.into(),
            reason: format!("{export}: {}", why(&error, limits::FUEL_BASE)),
        };
        if self.instance.get_func(&mut self.store, export).is_none() {
            return Ok(None);
        }
        self.store.set_fuel(limits::FUEL_BASE).map_err(failed)?;
        let function = self.instance.get_typed_func::<(), i32>(&mut self.store, export).map_err(failed)?;
        function.call(&mut self.store, ()).map(Some).map_err(failed)
    }

    /// Sees to it that there is room for `elements` elements and as many accumulators.
    ///
    /// # Errors
    /// In words, where the module's memory may not grow so far.
    pub(crate) fn make_room(&mut self, layout: &CustomLayout, elements: usize) -> Result<(), String> {
        if elements <= self.capacity {
            return Ok(());
        }
        let pages = |bytes: usize| bytes.div_ceil(PAGE_BYTES);
        let (accumulators, inputs) = (pages(elements * layout.accumulator_bytes), pages(elements * layout.element_bytes));
        let added = (accumulators + inputs) as u64;
        let before = self.memory.grow(&mut self.store, added).map_err(|_| {
            format!(
                "its memory of {} bytes cannot grow by the {} that {elements} elements need: at most {} in all, and no more than its own maximum",
                self.memory.data_size(&self.store),
                added * PAGE_BYTES as u64,
                limits::MEMORY_BYTES_MAX
            )
        })?;
        self.accumulators_at = before as usize * PAGE_BYTES;
        self.inputs_at = self.accumulators_at + accumulators * PAGE_BYTES;
        self.capacity = elements;
        Ok(())
    }
}

fn optional(instance: &WasmInstance, store: &mut Store<StoreLimits>, export: &str) -> wasmtime::Result<Option<Step>> {
    match instance.get_func(&mut *store, export) {
        Some(function) => function.typed(&*store).map(Some),
        None => Ok(None),
    }
}

/// What stopped a call, in words.
pub(crate) fn why(error: &wasmtime::Error, fuel: u64) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("it was stopped after {fuel} units of fuel: it never ends, or does too much for each element"),
        Some(trap) => trap.to_string(),
        None => format!("{error:#}"),
    }
}
