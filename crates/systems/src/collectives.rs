//! Which collectives a job's workers take. They refuse all others when they are called ([`fanin_core::FailureReason::Refused`]), which is too
//! late for whoever wrote the job down: this says so before, and why.

use fanin_core::CollectiveKind;

use crate::config::BuildError;
use crate::system::System;

/// Most packets that a vector may be cut into: every system numbers so many.
const PACKETS_MAX: u64 = 1 << 28;

/// Whether `workers` workers of a system take a collective of this kind with vectors of `message_bytes` bytes, in elements of `element_bytes`
/// bytes and packets of `payload_bytes` bytes of payload.
///
/// # Errors
/// [`BuildError`] of the field `collective` or `message`.
pub fn check_collective(
    system: &System,
    kind: CollectiveKind,
    workers: u32,
    (message_bytes, element_bytes, payload_bytes): (u64, u64, u64),
) -> Result<(), BuildError> {
    let name = kind.name();
    if !system.offers(kind) {
        let others = || System::names_of("and", |other| other.offers(CollectiveKind::Barrier));
        let only = || format!("allreduce, the one that {} has; {} have all", system.name(), others());
        let expected = system.facts().offered().map_or_else(only, str::to_string);
        return Err(BuildError::new("collective", name, expected));
    }
    system.facts().check_collective(kind, name)?;
    if let CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } = kind
        && root.0 >= workers
    {
        return Err(BuildError::new("root", root, format!("a rank below {workers}")));
    }
    if kind == CollectiveKind::Barrier && message_bytes != 0 {
        return Err(BuildError::new(
            "message",
            message_bytes,
            "0 with collective = \"barrier\": workers only meet in it, and have no vector",
        ));
    }
    let shares = u64::from(kind.shares(workers));
    if !message_bytes.is_multiple_of(shares * element_bytes) {
        let bytes = shares * element_bytes;
        let expected =
            format!("a multiple of {bytes} bytes with collective = {name:?}: a share of whole elements for each of {shares} workers");
        return Err(BuildError::new("message", message_bytes, expected));
    }
    if message_bytes.div_ceil(payload_bytes.max(1)) >= PACKETS_MAX {
        let most = PACKETS_MAX * payload_bytes.max(1) - 1;
        return Err(BuildError::new(
            "message",
            message_bytes,
            format!("at most {most} bytes with payload = {payload_bytes}: packets are numbered"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Rank;

    #[test]
    fn what_is_not_offered_is_refused_with_field_value_and_what_was_expected() {
        let words = |system: System, kind, bytes| {
            check_collective(&system, kind, 3, (bytes, 4, 64)).map_or_else(|error| error.to_string(), |()| "fine".to_string())
        };
        let reduce = CollectiveKind::Reduce { root: Rank(0) };
        assert_eq!(
            words(System::flare(0.1), reduce, 12),
            "collective = reduce: expected allreduce, the one that flare has; canary, switchml and exchange have all"
        );
        assert_eq!(words(System::canary(), reduce, 12), "fine");
        assert_eq!(
            words(System::SwitchMl(crate::SwitchMlParameters { fixed_point: true }), CollectiveKind::AllGather, 12),
            "collective = all-gather: expected allreduce, reduce or reduce-scatter, which sum, with fixed_point"
        );
        assert_eq!(words(System::SwitchMl(crate::SwitchMlParameters { fixed_point: false }), CollectiveKind::Barrier, 0), "fine");
        assert_eq!(
            words(System::canary(), CollectiveKind::Barrier, 4),
            "message = 4: expected 0 with collective = \"barrier\": workers only meet in it, and have no vector"
        );
        assert_eq!(
            words(System::canary(), CollectiveKind::ReduceScatter, 16),
            "message = 16: expected a multiple of 12 bytes with collective = \"reduce-scatter\": a share of whole elements for each of 3 workers"
        );
        assert_eq!(words(System::canary(), CollectiveKind::Broadcast { root: Rank(3) }, 16), "root = 3: expected a rank below 3");
        assert!(words(System::rina(), CollectiveKind::Allreduce, 1 << 40).contains("packets are numbered"));
        assert_eq!(words(System::rina(), CollectiveKind::Allreduce, 0), "fine");
    }
}
