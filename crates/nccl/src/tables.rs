//! The tables that NCCL looks for by name.
#![allow(clippy::type_complexity, reason = "the type of a table is the list of its functions' types")]

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{Collective, Logger, Net, Properties, Properties8, Properties9, Properties11, Properties12, Status, Table};
use crate::border::{
    count, deregister, finalize, get_properties, init_8, init_10, init_11, init_collective_11, make_virtual, register, register_descriptor,
    set_attributes,
};
use crate::collectives::{
    allgather, allreduce_8, allreduce_9, close, close_listen, connect, flush, listen_8, listen_11, reduce_scatter, reduce_support, test,
};
use crate::messages::{
    net_accept, net_close, net_close_listen, net_connect_8, net_connect_10, net_connect_11, net_flush, net_listen_8, net_listen_11,
    net_test, receive_8, receive_10, send_8, send_9, send_10,
};

/// The network's name, in NCCL's log and for `NCCL_NET`.
const NAME: *const c_char = c"Fanin".as_ptr();

type MakeVirtual = unsafe extern "C" fn(*mut c_int, *const c_void) -> Status;
type Finalize = unsafe extern "C" fn(*mut c_void) -> Status;
type SetAttributes = unsafe extern "C" fn(*mut c_void, *const c_void) -> Status;
type Init8 = unsafe extern "C" fn(Option<Logger>) -> Status;
type Init10 = unsafe extern "C" fn(Option<Logger>, *const c_void) -> Status;
type Init11 = unsafe extern "C" fn(*mut *mut c_void, u64, *const c_void, Option<Logger>, *const c_void) -> Status;
type InitCollective11 = unsafe extern "C" fn(*mut *mut c_void, u64, Option<Logger>) -> Status;
type Listen8 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> Status;
type Listen11 = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> Status;
type Connect8 = unsafe extern "C" fn(c_int, *const c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
type Connect10 = unsafe extern "C" fn(c_int, *const c_void, *const c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
type Connect11 = unsafe extern "C" fn(*mut c_void, c_int, *const c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
type Accept = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
type Send8 = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, *mut c_void, *mut *mut c_void) -> Status;
type Send9 = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, *mut *mut c_void) -> Status;
type Send10 = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void, *mut *mut c_void) -> Status;
type Receive<Size> =
    unsafe extern "C" fn(*mut c_void, c_int, *const *mut c_void, *const Size, *const c_int, *const *mut c_void, *mut *mut c_void) -> Status;
type Receive10 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const *mut c_void,
    *const usize,
    *const c_int,
    *const *mut c_void,
    *const *mut c_void,
    *mut *mut c_void,
) -> Status;
type Allreduce<Count> =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, Count, c_int, c_int, *mut c_void, *mut c_void, *mut *mut c_void) -> Status;
type GetProperties<P> = unsafe extern "C" fn(c_int, *mut P) -> Status;

const fn net<I, P: Properties, L, C, S, R, B>(
    init: I,
    (listen, connect): (L, C),
    (send, receive): (S, R),
    behind: B,
) -> Table<Net<I, GetProperties<P>, L, C, Accept, S, R, B>>
where
    I: Copy,
    L: Copy,
    C: Copy,
    S: Copy,
    R: Copy,
    B: Copy,
{
    Table(Net {
        name: NAME,
        init,
        devices: count,
        get_properties: get_properties::<P>,
        listen,
        connect,
        accept: net_accept,
        register,
        register_descriptor,
        deregister,
        send,
        receive,
        flush: net_flush,
        test: net_test,
        close_send: net_close,
        close_receive: net_close,
        close_listen: net_close_listen,
        get_device_memory: None,
        received_on_device: None,
        behind,
    })
}

const fn collective<I, P: Properties, L, A, B>(
    init: I,
    listen: L,
    allreduce: A,
    behind: B,
) -> Table<Collective<I, GetProperties<P>, L, A, B>>
where
    I: Copy,
    L: Copy,
    A: Copy,
    B: Copy,
{
    Table(Collective {
        name: NAME,
        init,
        devices: count,
        get_properties: get_properties::<P>,
        listen,
        connect,
        reduce_support,
        register,
        register_descriptor,
        deregister,
        allreduce,
        allgather,
        reduce_scatter,
        flush,
        test,
        close,
        close_listen,
        behind,
    })
}

/// Functions behind those of version 8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct From9(MakeVirtual);
/// Functions behind those of version 8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct From11(MakeVirtual, Finalize);
/// Functions behind those of version 8, of messages.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NetFrom11(MakeVirtual, Finalize, SetAttributes);

/// Messages, NCCL 2.19 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclNetPlugin_v8: Table<Net<Init8, GetProperties<Properties8>, Listen8, Connect8, Accept, Send8, Receive<c_int>, ()>> =
    net(init_8, (net_listen_8, net_connect_8), (send_8, receive_8::<c_int>), ());
/// Messages, NCCL 2.24 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclNetPlugin_v9: Table<Net<Init8, GetProperties<Properties9>, Listen8, Connect8, Accept, Send9, Receive<usize>, From9>> =
    net(init_8, (net_listen_8, net_connect_8), (send_9, receive_8::<usize>), From9(make_virtual));
/// Messages, NCCL 2.26 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclNetPlugin_v10: Table<Net<Init10, GetProperties<Properties9>, Listen8, Connect10, Accept, Send10, Receive10, From9>> =
    net(init_10, (net_listen_8, net_connect_10), (send_10, receive_10), From9(make_virtual));
/// Messages, NCCL 2.28 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclNetPlugin_v11: Table<Net<Init11, GetProperties<Properties11>, Listen11, Connect11, Accept, Send10, Receive10, NetFrom11>> =
    net(init_11, (net_listen_11, net_connect_11), (send_10, receive_10), NetFrom11(make_virtual, finalize, set_attributes));
/// Messages, NCCL 2.30 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclNetPlugin_v12: Table<Net<Init11, GetProperties<Properties12>, Listen11, Connect11, Accept, Send10, Receive10, NetFrom11>> =
    net(init_11, (net_listen_11, net_connect_11), (send_10, receive_10), NetFrom11(make_virtual, finalize, set_attributes));

/// Collectives, NCCL 2.19 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclCollNetPlugin_v8: Table<Collective<Init8, GetProperties<Properties8>, Listen8, Allreduce<c_int>, ()>> =
    collective(init_8, listen_8, allreduce_8, ());
/// Collectives, NCCL 2.24 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclCollNetPlugin_v9: Table<Collective<Init8, GetProperties<Properties9>, Listen8, Allreduce<usize>, From9>> =
    collective(init_8, listen_8, allreduce_9, From9(make_virtual));
/// Collectives, NCCL 2.26 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclCollNetPlugin_v10: Table<Collective<Init8, GetProperties<Properties9>, Listen8, Allreduce<usize>, From9>> =
    collective(init_8, listen_8, allreduce_9, From9(make_virtual));
/// Collectives, NCCL 2.28 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclCollNetPlugin_v11: Table<Collective<InitCollective11, GetProperties<Properties11>, Listen11, Allreduce<usize>, From11>> =
    collective(init_collective_11, listen_11, allreduce_9, From11(make_virtual, finalize));
/// Collectives, NCCL 2.30 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL's name")]
pub static ncclCollNetPlugin_v12: Table<Collective<InitCollective11, GetProperties<Properties12>, Listen11, Allreduce<usize>, From11>> =
    collective(init_collective_11, listen_11, allreduce_9, From11(make_virtual, finalize));
