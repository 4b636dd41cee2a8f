//! Memory that was used and is free goes back to the system.

/// Gives the system what this process's allocator has kept of memory that is free: a thread that ends leaves what it has freed in the arena that it
/// had, where the next thread, which may have another arena, does not find it. Takes some milliseconds for each 100 MB. Does nothing where the
/// allocator is not glibc's.
#[allow(unsafe_code, reason = "no library has this call of glibc")]
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call takes a number, touches free memory only, and may be made from any thread (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::fs;
    use std::sync::Barrier;
    use std::thread;

    fn resident_kib() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Eight threads with 16 MiB each in pieces of 8 KiB, of which one in 64 is kept, so that no arena ends with free memory.
    #[test]
    fn what_threads_have_freed_goes_back() {
        let all_have = Barrier::new(8);
        let kept: Vec<Vec<Vec<u8>>> = thread::scope(|scope| {
            let take = || {
                let pieces: Vec<Vec<u8>> = (0..2_048).map(|_| vec![1; 8 << 10]).collect();
                all_have.wait();
                pieces.into_iter().step_by(64).collect()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let before = resident_kib();
        super::give_back();
        let after = resident_kib();
        assert!(after + (64 << 10) < before, "{before} KiB before, {after} KiB after, {} lists are kept", kept.len());
    }
}
