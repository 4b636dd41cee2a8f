//! NCCL's plugin interface as it is in memory: numbers, properties of a device, and the tables of functions that NCCL looks for, versions 8 to 12.
//! Written from its documentation (`plugins/net/README.md` of NCCL 2.30).

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// How a function has ended (`ncclResult_t`).
pub type Status = c_int;
/// All went well.
pub const SUCCESS: Status = 0;
/// The system has failed: sockets, threads, memory.
pub const SYSTEM_ERROR: Status = 2;
/// A bug of the plugin, or of NCCL.
pub const INTERNAL_ERROR: Status = 3;
/// An argument does not fit.
pub const INVALID_ARGUMENT: Status = 4;
/// What was asked for is not how the plugin is used.
pub const INVALID_USAGE: Status = 5;
/// Another rank, or the switch, has failed.
pub const REMOTE_ERROR: Status = 6;

/// Bytes of a handle, with which others connect to whoever listens.
pub const HANDLE_BYTES: usize = 128;
/// Memory of the host, as a kind of pointer.
pub const PTR_HOST: c_int = 1;
/// Requests of a connection that are under way at once.
pub const REQUESTS_MAX: usize = 32;

/// Levels of NCCL's log.
pub const LOG_WARN: c_int = 2;
/// As above.
pub const LOG_INFO: c_int = 3;
/// Parts of NCCL that a message is about.
pub const ABOUT_INIT: c_ulong = 1;
/// As above.
pub const ABOUT_NET: c_ulong = 16;

/// NCCL's log: level, parts, file, line, format.
pub type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// A kind of network that does things by itself on the card; this one does not.
const DEVICE_HOST: c_int = 0;
/// No version of such a kind.
const DEVICE_NO_VERSION: c_int = 0;
/// Of a rail or plane that is not known.
const UNDEFINED: i16 = -1;

/// Several network cards as one device.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Virtual<const DEVICES_MAX: usize> {
    count: c_int,
    devices: [c_int; DEVICES_MAX],
}

/// What NCCL is told of a device, whatever the version.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// Its number.
    pub index: c_int,
    /// Ends with a zero byte, and stays.
    pub name: *const c_char,
    /// The card in `/sys`, or NULL.
    pub pci_path: *const c_char,
    /// Of the card; the same for all its ports.
    pub guid: u64,
    /// In Mb/s.
    pub speed: c_int,
    /// In microseconds.
    pub latency: f32,
    /// Connections at once.
    pub comms_max: c_int,
    /// The longest transfer.
    pub bytes_max: usize,
}

/// What all versions begin with, up to the one field that version 9 has put between.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Properties8 {
    name: *const c_char,
    pci_path: *const c_char,
    guid: u64,
    pointers: c_int,
    registration_is_global: c_int,
    speed: c_int,
    port: c_int,
    latency: f32,
    comms_max: c_int,
    receives_max: c_int,
    device_type: c_int,
    device_version: c_int,
}

/// Versions 9 and 10; versions 11 and 12 have more behind it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Properties9<const DEVICES_MAX: usize = 4> {
    name: *const c_char,
    pci_path: *const c_char,
    guid: u64,
    pointers: c_int,
    registration_is_global: c_int,
    force_flush: c_int,
    speed: c_int,
    port: c_int,
    latency: f32,
    comms_max: c_int,
    receives_max: c_int,
    device_type: c_int,
    device_version: c_int,
    whole: Virtual<DEVICES_MAX>,
    transfer_max: usize,
    collective_max: usize,
}

/// Version 11.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Properties11 {
    before: Properties9,
    requests_at_once: c_int,
}

/// Version 12.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Properties12 {
    before: Properties9<8>,
    requests_at_once: c_int,
    rail: i16,
    plane: i16,
}

/// Properties of a device in one of the versions.
pub trait Properties {
    /// Those of a device.
    fn of(facts: &Facts) -> Self;
}

impl Properties for Properties8 {
    fn of(facts: &Facts) -> Self {
        Properties8 {
            name: facts.name,
            pci_path: facts.pci_path,
            guid: facts.guid,
            pointers: PTR_HOST,
            registration_is_global: 1,
            speed: facts.speed,
            port: 0,
            latency: facts.latency,
            comms_max: facts.comms_max,
            receives_max: 1,
            device_type: DEVICE_HOST,
            device_version: DEVICE_NO_VERSION,
        }
    }
}

impl<const DEVICES_MAX: usize> Properties for Properties9<DEVICES_MAX> {
    fn of(facts: &Facts) -> Self {
        let mut devices = [0; DEVICES_MAX];
        devices[0] = facts.index;
        Properties9 {
            name: facts.name,
            pci_path: facts.pci_path,
            guid: facts.guid,
            pointers: PTR_HOST,
            registration_is_global: 1,
            force_flush: 0,
            speed: facts.speed,
            port: 0,
            latency: facts.latency,
            comms_max: facts.comms_max,
            receives_max: 1,
            device_type: DEVICE_HOST,
            device_version: DEVICE_NO_VERSION,
            whole: Virtual { count: 1, devices },
            transfer_max: facts.bytes_max,
            collective_max: facts.bytes_max,
        }
    }
}

impl Properties for Properties11 {
    fn of(facts: &Facts) -> Self {
        Properties11 { before: Properties::of(facts), requests_at_once: 1 }
    }
}

impl Properties for Properties12 {
    fn of(facts: &Facts) -> Self {
        Properties12 { before: Properties::of(facts), requests_at_once: 1, rail: UNDEFINED, plane: UNDEFINED }
    }
}

/// A stretch of memory that is part of a gathered or scattered vector.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// What registering the memory gave.
    pub registered: *mut c_void,
    /// Where it begins.
    pub address: *mut c_void,
    /// How many bytes it has.
    pub bytes: usize,
}

/// A function that is not there.
pub type Absent = Option<unsafe extern "C" fn() -> Status>;

/// Messages between two ranks, from version `VERSION` of the interface; what differs between versions are the types, and what is behind.
#[repr(C)]
pub struct Net<Init, GetProperties, Listen, Connect, Accept, Send, Receive, Behind> {
    /// The network's name.
    pub name: *const c_char,
    /// First of all, for each of NCCL's communicators.
    pub init: Init,
    /// How many devices there are.
    pub devices: unsafe extern "C" fn(*mut c_int) -> Status,
    /// What a device is.
    pub get_properties: GetProperties,
    /// A place where one peer connects to.
    pub listen: Listen,
    /// The sender's side of a connection.
    pub connect: Connect,
    /// The receiver's side.
    pub accept: Accept,
    /// Memory that will be used.
    pub register: RegisterMemory,
    /// Memory of a card, by a descriptor.
    pub register_descriptor: RegisterDescriptor,
    /// Memory that will not be used any more.
    pub deregister: DeregisterMemory,
    /// Sends in the background.
    pub send: Send,
    /// Receives in the background.
    pub receive: Receive,
    /// Makes what was received visible to a card.
    pub flush: unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void, *mut c_int, *mut *mut c_void, *mut *mut c_void) -> Status,
    /// Whether a request has ended.
    pub test: unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> Status,
    /// Ends a connection.
    pub close_send: Close,
    /// As above.
    pub close_receive: Close,
    /// Ends a place to connect to.
    pub close_listen: Close,
    /// What only networks have that do things on the card.
    pub get_device_memory: Absent,
    /// As above.
    pub received_on_device: Absent,
    /// What later versions have.
    pub behind: Behind,
}

/// Collectives, from version `VERSION` of the interface.
#[repr(C)]
pub struct Collective<Init, GetProperties, Listen, Allreduce, Behind> {
    /// The network's name.
    pub name: *const c_char,
    /// First of all, for each of NCCL's communicators.
    pub init: Init,
    /// How many devices there are.
    pub devices: unsafe extern "C" fn(*mut c_int) -> Status,
    /// What a device is.
    pub get_properties: GetProperties,
    /// A rank's place in a group to come.
    pub listen: Listen,
    /// The group: handles of all ranks, how many, which one this is.
    pub connect: unsafe extern "C" fn(*const *const c_void, c_int, c_int, *mut c_void, *mut *mut c_void) -> Status,
    /// Whether elements of a type can be reduced by an operator.
    pub reduce_support: unsafe extern "C" fn(c_int, c_int, *mut c_int) -> Status,
    /// Memory that will be used.
    pub register: RegisterMemory,
    /// Memory of a card, by a descriptor.
    pub register_descriptor: RegisterDescriptor,
    /// Memory that will not be used any more.
    pub deregister: DeregisterMemory,
    /// Reduces a vector, for all.
    pub allreduce: Allreduce,
    /// Gathers a window of the vectors of all.
    pub allgather:
        unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *const Part, usize, usize, usize, *mut c_void, *mut *mut c_void) -> Status,
    /// Reduces a window of a vector, of which each gets a part.
    pub reduce_scatter: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *const Part,
        *mut c_void,
        usize,
        usize,
        usize,
        c_int,
        c_int,
        *mut c_void,
        *mut *mut c_void,
    ) -> Status,
    /// Makes what was received visible to a card.
    pub flush: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void, *mut *mut c_void) -> Status,
    /// Whether a request has ended.
    pub test: unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> Status,
    /// Ends a group.
    pub close: Close,
    /// Ends a place in a group to come.
    pub close_listen: Close,
    /// What later versions have.
    pub behind: Behind,
}

/// Memory that will be used: of a connection, where, how long, what kind, and what to call it.
pub type RegisterMemory = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> Status;
/// Memory of a card: the same with an offset and a file descriptor.
pub type RegisterDescriptor = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, u64, c_int, *mut *mut c_void) -> Status;
/// Memory that will not be used any more.
pub type DeregisterMemory = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
/// Ends something.
pub type Close = unsafe extern "C" fn(*mut c_void) -> Status;

/// A table of functions, which never changes.
#[repr(transparent)]
pub struct Table<T>(pub T);

// SAFETY: pointers in it are to text and functions of this library, which stay and do not change.
unsafe impl<T> Sync for Table<T> {}
