//! In place of shared memory when the code runs in loom: words that loom watches, areas of plain memory of which it watches who looks at them and who
//! changes them, and sleeping as the kernel has it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell as Plain;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Condvar;

use super::layout::SegmentError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Memory that can be opened again by its path. Loom's threads take turns on one thread, and none gives its turn away while it holds this.
static MADE: Mutex<BTreeMap<String, Weak<Memory>>> = Mutex::new(BTreeMap::new());

/// What loom watches.
#[derive(Debug, Default)]
struct Watched {
    words: BTreeMap<usize, AtomicU64>,
    halves: BTreeMap<usize, AtomicU32>,
    areas: BTreeMap<usize, UnsafeCell<()>>,
}

#[derive(Debug)]
struct Memory {
    bytes: Box<[Plain<u8>]>,
    watched: OnceLock<Watched>,
}

// SAFETY: its bytes are areas, of which loom finds out whether two threads use them at once.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// As the real one.
#[derive(Debug)]
pub(super) struct Mapping(Arc<Memory>);

impl Mapping {
    pub(super) fn create(bytes: usize) -> Result<Self, SegmentError> {
        let memory = Arc::new(Memory { bytes: (0..bytes).map(|_| Plain::new(0)).collect(), watched: OnceLock::new() });
        let mapping = Mapping(memory);
        MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(mapping.path(), Arc::downgrade(&mapping.0));
        Ok(mapping)
    }

    pub(super) fn open(path: &str, bytes: usize) -> Result<Self, SegmentError> {
        let missing = || SegmentError::System { what: "open it", source: io::ErrorKind::NotFound.into() };
        let made = MADE.lock().unwrap_or_else(PoisonError::into_inner).get(path).and_then(Weak::upgrade).ok_or_else(missing)?;
        if made.bytes.len() != bytes {
            return Err(SegmentError::Foreign { path: path.into() });
        }
        Ok(Mapping(made))
    }

    /// Has loom watch words, half words and areas, all zero now.
    pub(super) fn model(
        &self,
        words: impl Iterator<Item = usize>,
        halves: impl Iterator<Item = usize>,
        areas: impl Iterator<Item = NonNull<u8>>,
    ) {
        let watched = Watched {
            words: words.map(|offset| (offset, AtomicU64::new(0))).collect(),
            halves: halves.map(|offset| (offset, AtomicU32::new(0))).collect(),
            areas: areas.map(|area| (area.as_ptr() as usize, UnsafeCell::new(()))).collect(),
        };
        self.0.watched.set(watched).expect("once");
    }

    fn watched(&self) -> &Watched {
        self.0.watched.get().expect("modelled")
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        &self.watched().words[&offset]
    }

    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        &self.watched().halves[&offset]
    }

    /// Somebody looks at an area: loom finds whoever changes it at the same time.
    pub(super) fn look(&self, area: NonNull<u8>) {
        self.watched().areas[&(area.as_ptr() as usize)].with(|_| ());
    }

    /// Somebody changes an area: loom finds whoever else uses it at the same time.
    pub(super) fn change(&self, area: NonNull<u8>) {
        self.watched().areas[&(area.as_ptr() as usize)].with_mut(|_| ());
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        NonNull::from(&self.0.bytes[0]).cast()
    }

    pub(super) fn path(&self) -> String {
        format!("modelled/{:p}", self.0)
    }
}

loom::lazy_static! {
    /// The kernel's list of sleepers.
    static ref SLEEPERS: (loom::sync::Mutex<()>, Condvar) = (loom::sync::Mutex::new(()), Condvar::new());
}

pub(super) fn wake(_word: &AtomicU32) {
    drop(SLEEPERS.0.lock().expect("nobody panics"));
    SLEEPERS.1.notify_all();
}

/// Without a limit: a sleeper that nobody wakes is a finding.
pub(super) fn sleep(word: &AtomicU32, value: u32, _limit: Duration) {
    let list = SLEEPERS.0.lock().expect("nobody panics");
    if word.load(Ordering::Relaxed) == value {
        drop(SLEEPERS.1.wait(list).expect("nobody panics"));
    }
}
