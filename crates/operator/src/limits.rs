//! How large, how hungry and how slow a module may be. A switch serves many jobs, and none may take what the others need.

/// The longest name of an operator, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// The largest module, in bytes. Those of `examples/operators` have a few hundred to a few thousand.
pub const MODULE_BYTES_MAX: usize = 64 << 10;
/// The longest element, in bytes: a packet must hold at least one.
pub const ELEMENT_BYTES_MAX: usize = 1 << 10;
/// How many times as long as the element an accumulator may be: a switch has that much memory for each block under way.
pub const ACCUMULATOR_FACTOR_MAX: usize = 32;

/// Functions that a module may have.
pub const FUNCTIONS_MAX: u32 = 512;
/// Parameters and local variables that a function may have: five bytes of a module can ask for 50,000 of them, and each costs the compiler
/// time and the function stack.
pub const LOCALS_MAX: u32 = 512;
/// The longest code of one function, in bytes: what the compiler does with a function may grow faster than its length.
pub const FUNCTION_BYTES_MAX: usize = 32 << 10;

/// The largest memory of an instance, in bytes, with what is put into it.
pub const MEMORY_BYTES_MAX: usize = 8 << 20;
/// The most entries of a table.
pub const TABLE_ENTRIES_MAX: usize = 1 << 10;
/// The deepest stack of a call, in bytes.
pub const STACK_BYTES_MAX: usize = 256 << 10;

/// What a call may use beside what it has for each byte, in units of about one instruction. Also what instantiating may use.
pub const FUEL_BASE: u64 = 100_000;
/// What a call may use for each byte of the elements that it is given: an exponential and a logarithm of every float take about a tenth.
pub const FUEL_PER_BYTE: u64 = 500;

/// What a call with this many bytes of elements may use.
pub const fn fuel(bytes: usize) -> u64 {
    FUEL_BASE + FUEL_PER_BYTE * bytes as u64
}
