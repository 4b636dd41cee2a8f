//! What a test program has left when it ends: threads that still run, descriptors that are still open, processes that it has started. Each is a test that
//! did not wait for what it began, or a library that keeps what its user has closed.
//!
//! A test program that says [`watched!`] once is looked at when it ends. What is about to end is waited for; where nothing is left, that costs one look.
//! Only on Linux, whose `/proc` says what there is.
//!
//! `unsafe` is needed to be called before `main` and at its end, and for nothing else.
#![deny(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// What is about to end may take so long: for a machine with much else to do.
const GRACE: Duration = Duration::from_secs(10);
/// A variable of the environment that says another limit, in milliseconds.
pub const GRACE_MS: &str = "FANIN_LEFTOVERS_GRACE_MS";
/// The exit code of a program that has left something.
pub const EXIT_CODE: i32 = 102;

/// What there was before `main`.
static BEGAN: OnceLock<Began> = OnceLock::new();

struct Began {
    descriptors: BTreeMap<u32, String>,
    /// Beginnings of names of threads that may be left.
    lasting: &'static [&'static str],
}

/// Has this test program looked at when it ends. Arguments are beginnings of the names of threads that live as long as their process.
#[macro_export]
macro_rules! watched {
    ($($lasting:literal),* $(,)?) => {
        #[used]
        #[allow(unsafe_code)]
        #[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
        static FANIN_LEFTOVERS: extern "C" fn() = {
            extern "C" fn begin() {
                $crate::begin(&[$($lasting),*]);
            }
            begin
        };
    };
}

/// Remembers what there is, and has it looked what is left of it when the process ends. For [`watched!`].
#[allow(unsafe_code)]
pub fn begin(lasting: &'static [&'static str]) {
    if BEGAN.set(Began { descriptors: descriptors(), lasting }).is_ok() {
        // SAFETY: a function of the program's own, which stays where it is. Where there is no room for it, nothing is looked at.
        unsafe { libc::atexit(end) };
    }
}

#[allow(unsafe_code)]
extern "C" fn end() {
    let limit = env::var(GRACE_MS).ok().and_then(|text| text.parse().ok()).map_or(GRACE, Duration::from_millis);
    let until = Instant::now() + limit;
    let mut found = left();
    while !found.is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
        found = left();
    }
    if !found.is_empty() {
        eprintln!("left behind by this test program:\n{}", found.join("\n"));
        // SAFETY: ends the process at once, from where `exit` may not be called again.
        unsafe { libc::_exit(EXIT_CODE) };
    }
}

/// What is left now, in words; nothing where `/proc` cannot be read.
fn left() -> Vec<String> {
    let Some(began) = BEGAN.get() else { return Vec::new() };
    let threads = threads().into_iter().filter(|(_, name)| !began.lasting.iter().any(|lasting| name.starts_with(lasting)));
    let threads = threads.map(|(id, name)| format!("thread {id}: {name}"));
    let open = descriptors().into_iter().filter(|(number, what)| began.descriptors.get(number) != Some(what));
    let open = open.map(|(number, what)| format!("descriptor {number}: {what}"));
    let started = children().into_iter().map(|(id, name)| format!("process {id}: {name}"));
    threads.chain(open).chain(started).collect()
}

fn name_of(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned()
}

/// Threads but the first one, by number, with their names.
fn threads() -> BTreeMap<u32, String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let numbered = tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, name_of(&task.path()))));
    // One that has ended while it was looked at has no name.
    numbered.filter(|(id, name)| *id != process::id() && !name.is_empty()).collect()
}

/// Open descriptors by number, with what they are of; without that by which this is read.
fn descriptors() -> BTreeMap<u32, String> {
    let folder = fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(Result::ok);
    let read = folder.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, fs::read_link(entry.path()).ok()?)));
    let named = read.map(|(number, what)| (number, what.display().to_string()));
    let own = format!("/proc/{}/fd", process::id());
    named.filter(|(_, what)| *what != own).collect()
}

/// Processes that this one has started and not waited for, also those that have ended.
fn children() -> BTreeMap<u32, String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids: Vec<u32> = lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    ids.into_iter().map(|id| (id, name_of(&Path::new("/proc").join(id.to_string())))).collect()
}
