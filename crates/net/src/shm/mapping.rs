//! The shared memory itself: made by one process without a name in any file system, found by the others through `/proc`, gone with the
//! last process that uses it.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::{io, process, ptr};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use super::layout::SegmentError;

fn system(what: &'static str) -> impl Fn(io::Error) -> SegmentError {
    move |source| SegmentError::System { what, source }
}

/// A mapping that stays where it is for as long as this lives.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    memory: File,
}

impl Mapping {
    /// New memory of zeros.
    pub(super) fn create(bytes: usize) -> Result<Self, SegmentError> {
        let memory =
            memfd_create("fanin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(|error| system("memfd_create")(error.into()))?;
        ftruncate(&memory, bytes as u64).map_err(|error| system("set its length")(error.into()))?;
        // Nobody can make the file shorter, so no access faults.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(|error| system("seal it")(error.into()))?;
        Mapping::map(memory, bytes)
    }

    /// Memory that another process has made, exactly so long.
    pub(super) fn open(path: &str, bytes: usize) -> Result<Self, SegmentError> {
        let foreign = || SegmentError::Foreign { path: path.into() };
        let memory = File::options().read(true).write(true).open(path).map_err(system("open it"))?;
        let metadata = memory.metadata().map_err(system("look at it"))?;
        let seals = rustix::fs::fcntl_get_seals(&memory).map_err(|_| foreign())?;
        if metadata.len() != bytes as u64 || !seals.contains(SealFlags::SHRINK) {
            return Err(foreign());
        }
        Mapping::map(memory.into(), bytes)
    }

    fn map(memory: OwnedFd, bytes: usize) -> Result<Self, SegmentError> {
        // SAFETY: a new mapping of a file that is as long as the mapping and cannot become shorter.
        let base = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memory, 0)
                .map_err(|error| system("map it")(error.into()))?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| system("map it")(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Mapping { base, bytes, memory: memory.into() })
    }

    /// Where it begins, at a page.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where other processes find it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.memory.as_raw_fd())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nobody has a slice of it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Wakes everybody who sleeps at a word of it.
pub(super) fn wake(word: &std::sync::atomic::AtomicU32) {
    // Nobody may sleep there any more.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Sleeps for as long as a word of it has this value and nobody wakes it, but not longer than `limit`.
pub(super) fn sleep(word: &std::sync::atomic::AtomicU32, value: u32, limit: std::time::Duration) {
    // A word that has changed since, an interruption and the end of the time all bring the caller back, which looks again.
    let limit = rustix::event::Timespec { tv_sec: limit.as_secs().min(3_600) as i64, tv_nsec: limit.subsec_nanos().into() };
    let _ = futex::wait(word, futex::Flags::empty(), value, Some(&limit));
}
