//! Who may join: tokens are verified by the keys of a file, which is read anew when it changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanin_control::{Join, Pass};
use fanin_trust::KeyFile;
use tokio::time::Instant;

/// How often it is looked whether the file has changed, at most.
const LOOK: Duration = Duration::from_secs(1);
/// The longest key file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file was when it was read: it has changed where any of this has.
type Stamp = (Option<SystemTime>, u64);

/// The keys of a switch.
pub(crate) struct Gate {
    path: PathBuf,
    /// Of the manager of a fabric.
    in_fabric: bool,
    file: KeyFile,
    stamp: Option<Stamp>,
    looked: Instant,
}

impl Gate {
    /// Reads the file of the keys.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub(crate) fn open(path: &Path, in_fabric: bool) -> Result<Self, String> {
        let (file, stamp) = read(path, in_fabric)?;
        Ok(Gate { path: path.to_owned(), in_fabric, file, stamp: Some(stamp), looked: Instant::now() })
    }

    /// Reads the file again where it has changed. One that cannot be read changes nothing, and is told once.
    pub(crate) fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let stamp = stamp(&self.path).ok();
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read(&self.path, self.in_fabric) {
            Ok((file, stamp)) => {
                tracing::info!(file = %self.path.display(), keys = file.names().count(), "the keys have been read again");
                (self.file, self.stamp) = (file, Some(stamp));
            }
            Err(error) => tracing::error!(error, "the keys have changed and cannot be read: those before stay"),
        }
    }

    /// Whether a request to join has a token that is good for it.
    ///
    /// # Errors
    /// In words, for the user.
    pub(crate) fn admit(&mut self, join: &Join) -> Result<Pass, String> {
        self.look();
        let (job, rank) = (&join.job, join.rank);
        let Some(token) = &join.token else {
            return Err(format!(
                "rank {rank} of job `{job}` has no token, and this switch asks for one: set FANIN_TOKEN (`fanin token issue`)"
            ));
        };
        let refused = |why: String| format!("the token of rank {rank} of job `{job}` does not admit it: {why}");
        let rights = self.file.verify(&token.0, now_s()).map_err(|error| refused(error.to_string()))?;
        rights.allow(job, rank).map_err(refused)?;
        let quota = self.file.quota(&rights.tenant);
        Ok(Pass { tenant: rights.tenant, quota })
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.modified().ok(), metadata.len()))
}

fn read(path: &Path, in_fabric: bool) -> Result<(KeyFile, Stamp), String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    // Before the text: what is written meanwhile is seen at the next look.
    let stamp = stamp(path).map_err(failed)?;
    if stamp.1 > FILE_BYTES_MAX {
        return Err(format!("{name} has {} bytes: expected at most {FILE_BYTES_MAX}", stamp.1));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let file = KeyFile::parse(&text).map_err(|error| format!("{name}: {error}"))?;
    if let Some(of) = file.has_rates().filter(|_| in_fabric) {
        return Err(format!(
            "{name}: {of}: bandwidth_max and fuel_per_second are kept by one switch for its jobs; in a fabric, whose switches have one port for all \
             jobs, links have rates: expected neither"
        ));
    }
    Ok((file, stamp))
}
