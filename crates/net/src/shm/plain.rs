//! In place of shared memory when the code runs in Miri, which knows no system call for it: plain memory of this process, so that Miri
//! watches every access of all ranks, which are threads then.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::layout::SegmentError;

/// Memory that can be opened again by its path.
static MADE: Mutex<BTreeMap<String, Weak<Plain>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Plain {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: only an address; `Segment` says who may use what is there.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody has a slice of it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// As the real one.
#[derive(Debug)]
pub(super) struct Mapping(Arc<Plain>);

impl Mapping {
    pub(super) fn create(bytes: usize) -> Result<Self, SegmentError> {
        let layout = Layout::from_size_align(bytes, 4_096).expect("the layout was checked");
        // SAFETY: the length is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        let mapping = Mapping(Arc::new(Plain { base, layout }));
        MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(mapping.path(), Arc::downgrade(&mapping.0));
        Ok(mapping)
    }

    pub(super) fn open(path: &str, bytes: usize) -> Result<Self, SegmentError> {
        let missing = || SegmentError::System { what: "open it", source: io::ErrorKind::NotFound.into() };
        let made = MADE.lock().unwrap_or_else(PoisonError::into_inner).get(path).and_then(Weak::upgrade).ok_or_else(missing)?;
        if made.layout.size() != bytes {
            return Err(SegmentError::Foreign { path: path.into() });
        }
        Ok(Mapping(made))
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    pub(super) fn path(&self) -> String {
        format!("plain/{:p}", self.0.base)
    }
}

pub(super) fn wake(_word: &AtomicU32) {}

pub(super) fn sleep(_word: &AtomicU32, _value: u32, _limit: Duration) {
    thread::yield_now();
}
