//! Files that plans name: from the disk, beside the plan, or from what came along with a plan that is run elsewhere.
//!
//! A process that sends its runs elsewhere [keeps](keep) what its plans have read; where they arrive, it is [brought](bring) for a plan whose name
//! nothing else has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files of a plan, by the names that it has for them.
pub type Files = BTreeMap<String, Arc<[u8]>>;

/// Whether this process keeps what its plans read.
static KEEPS: AtomicBool = AtomicBool::new(false);

/// What was kept, by plan.
static KEPT: Mutex<BTreeMap<String, Files>> = Mutex::new(BTreeMap::new());

/// What was brought, by plan.
static BROUGHT: Mutex<BTreeMap<String, Arc<Files>>> = Mutex::new(BTreeMap::new());

fn locked<T>(what: &'static Mutex<T>) -> MutexGuard<'static, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what plans read from now on, and nothing that they have read before.
pub fn keep() {
    locked(&KEPT).clear();
    KEEPS.store(true, Ordering::Relaxed);
}

/// What a plan has read since [`keep`].
pub fn kept(plan: &str) -> Files {
    locked(&KEPT).get(plan).cloned().unwrap_or_default()
}

/// Has a plan of this name find these files, and no others.
pub fn bring(plan: &str, files: Files) {
    locked(&BROUGHT).insert(plan.to_string(), Arc::new(files));
}

/// Lets go of what [`bring`] has brought.
pub fn forget(plan: &str) {
    locked(&BROUGHT).remove(plan);
}

/// Where a plan's file is: relative names are taken from the plan's folder on.
pub fn path(plan: &str, name: &str) -> PathBuf {
    Path::new(plan).parent().map_or_else(|| name.into(), |folder| folder.join(name))
}

/// Reads a file of a plan, of at most so many bytes.
///
/// # Errors
/// It is not there, cannot be read, is no file ([`io::ErrorKind::InvalidInput`]) or is too long ([`io::ErrorKind::FileTooLarge`]).
pub fn read(plan: &str, name: &str, bytes_max: u64) -> io::Result<Arc<[u8]>> {
    let brought = locked(&BROUGHT).get(plan).cloned();
    if let Some(files) = brought {
        let found = files.get(name).cloned();
        let bytes = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it did not come along with the plan"))?;
        remember(plan, name, &bytes);
        return Ok(bytes);
    }
    let file = File::open(path(plan, name))?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")));
    }
    let bytes: Arc<[u8]> = bytes.into();
    remember(plan, name, &bytes);
    Ok(bytes)
}

fn remember(plan: &str, name: &str, bytes: &Arc<[u8]>) {
    if KEEPS.load(Ordering::Relaxed) {
        locked(&KEPT).entry(plan.to_string()).or_default().insert(name.to_string(), bytes.clone());
    }
}

/// The same for a text.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(plan: &str, name: &str, bytes_max: u64) -> io::Result<String> {
    let bytes = read(plan, name, bytes_max)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}
