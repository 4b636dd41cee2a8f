//! Variables of the environment that look like Fanin's and that nothing reads: misspelt, most likely.

/// What they begin with.
const PREFIX: &str = "FANIN_";
/// Variables of other parts: of the build of the Python package, of the library for MPI programs, and of tests.
const OTHERS: &[&str] = &["FANIN_PROFILE", "FANIN_MPI_SERVE", "FANIN_MPI_VERBOSE"];
const TESTS: &str = "FANIN_TEST_";
/// A name is taken for another one that is misspelt where so many letters are wrong, too many or missing.
const LETTERS_MAX: usize = 2;

/// The variables that [`Config::from_env`](crate::Config::from_env) reads, what each means, and its default.
pub const VARIABLES: &[(&str, &str)] = &[
    ("FANIN_RANK", "this process's rank; else RANK (torchrun), OMPI_COMM_WORLD_RANK (mpirun), 0"),
    ("FANIN_WORLD", "number of ranks; else WORLD_SIZE, OMPI_COMM_WORLD_SIZE, 1"),
    ("FANIN_SWITCH", "HOST:PORT of a switch (`fanin switch`)"),
    ("FANIN_FABRIC", "HOST:PORT of the manager of a fabric of several switches (`fanin manager`)"),
    ("FANIN_FABRIC_HOST", "the host of the fabric that this process is; by default the one at its address"),
    ("FANIN_TOKEN", "what gives the right to join, where the switch asks for it: a token (`fanin token issue`), or @FILE"),
    (
        "FANIN_TLS",
        "by what the switch is known, and control connections are TLS: the file of its CA's certificates (PEM), or sha256:FINGERPRINT of its own",
    ),
    ("FANIN_TLS_NAME", "the name that the switch's certificate must have; by default HOST of where ranks meet"),
    ("FANIN_TLS_CERT", "the file of this rank's certificate (PEM), where the switch asks for one or rank 0 runs it"),
    ("FANIN_TLS_KEY", "the file of the private key of FANIN_TLS_CERT (PEM)"),
    ("FANIN_SYSTEM", "the system that sums, as canary or tree, in a fabric or at one switch; auto"),
    ("FANIN_FALLBACK", "ring or error: what becomes of a job whose switch or fabric does not take it, or whose switch is gone; ring"),
    ("FANIN_RENDEZVOUS", "HOST:PORT where rank 0 listens if there is no switch; else MASTER_ADDR:(MASTER_PORT + 1)"),
    ("FANIN_JOB", "the job's name, the same at all ranks; else TORCHELASTIC_RUN_ID, `default`"),
    ("FANIN_TIMEOUT", "how long to wait for other ranks or the switch, as 5s or 300ms; 60s"),
    ("FANIN_STALL_NOTICE", "after how long without progress to say why, as 5s or 300ms; 5s"),
    ("FANIN_TRANSPORT", "auto, udp or shm; auto takes shared memory where all ranks are on one host"),
    ("FANIN_WAIT", "adaptive (spin, yield, then sleep) or busy (never sleep); adaptive"),
    ("FANIN_BIND", "the local IP address to send from; by default the one that leads to the switch"),
    ("FANIN_PAYLOAD", "bytes of elements in a packet, as 1024 or 8KiB; by default what the path carries"),
    ("FANIN_WINDOW", "packets under way; by default the switch chooses"),
    ("FANIN_FIXED_POINT", "1 sums floats as block fixed point, as hardware switches do; 0"),
    ("FANIN_REPRODUCIBLE", "1 reduces floats to the same bits whatever the order, the path and the switches: element (as 1), block; 0"),
    ("FANIN_SPARSE", "auto, switch or lists: how sparse vectors are reduced by UDP; auto takes the switch where that saves bytes"),
];

/// A name that is nearly one that is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Misspelt {
    pub(crate) name: String,
    /// The one that is meant, most likely.
    pub(crate) meant: &'static str,
}

/// The names of all variables of the environment.
pub fn environment() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// Those that nothing reads.
///
/// # Errors
/// [`Misspelt`] for one that is nearly one that is read.
pub(crate) fn unread(names: impl Iterator<Item = String>) -> Result<Vec<String>, Misspelt> {
    let is_known = |name: &str| OTHERS.contains(&name) || name.starts_with(TESTS) || VARIABLES.iter().any(|(known, _)| *known == name);
    let mut unread: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && !is_known(name)).collect();
    unread.sort_unstable();
    for name in &unread {
        let near = VARIABLES.iter().map(|(known, _)| (strsim::damerau_levenshtein(name, known), *known)).min();
        if let Some((letters, meant)) = near
            && letters <= LETTERS_MAX
        {
            return Err(Misspelt { name: name.clone(), meant });
        }
    }
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<String>, Misspelt> {
        unread(names.iter().map(ToString::to_string))
    }

    #[test]
    fn what_nothing_reads_is_told_and_what_is_misspelt_is_an_error() {
        assert_eq!(of(&["FANIN_SWITCH", "PATH", "FANIN_PROFILE", "FANIN_TEST_X", "SWITCH"]), Ok(vec![]));
        assert_eq!(of(&["FANIN_COLOUR", "FANIN_A_THING_OF_THE_USER"]), Ok(vec!["FANIN_A_THING_OF_THE_USER".into(), "FANIN_COLOUR".into()]));
        for (name, meant) in [
            ("FANIN_REPRODUCABLE", "FANIN_REPRODUCIBLE"),
            ("FANIN_SWTICH", "FANIN_SWITCH"),
            ("FANIN_TIMEOUTS", "FANIN_TIMEOUT"),
            ("FANIN_FIXEDPOINT", "FANIN_FIXED_POINT"),
        ] {
            let error = of(&["FANIN_COLOUR", name]).unwrap_err();
            assert_eq!(error, Misspelt { name: name.into(), meant });
        }
    }
}
