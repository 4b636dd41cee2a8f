//! Words for people.

/// How many ranks are listed one by one.
const RANKS_LISTED: usize = 8;

/// `rank 3`, `ranks 1, 2 and 5`, `ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 more`.
pub(super) fn ranks(ranks: &[u32]) -> String {
    let list = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [first @ .., last] if ranks.len() <= RANKS_LISTED => format!("ranks {} and {last}", list(first)),
        _ => format!("ranks {} and {} more", list(&ranks[..RANKS_LISTED]), ranks.len() - RANKS_LISTED),
    }
}

/// `has` or `have`, and such.
pub(super) fn verb<'a>(ranks: &[u32], one: &'a str, more: &'a str) -> &'a str {
    if ranks.len() == 1 { one } else { more }
}

/// A time in the unit that fits: `350 ms`, `5 s`, `1.5 s`.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ if ms.is_multiple_of(1_000) || ms >= 10_000 => format!("{} s", ms / 1_000),
        _ => format!("{}.{} s", ms / 1_000, ms / 100 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_people_do_it() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[1, 2]), "ranks 1 and 2");
        assert_eq!(ranks(&[1, 2, 5]), "ranks 1, 2 and 5");
        assert_eq!(ranks(&(0..32).collect::<Vec<_>>()), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 more");
        assert_eq!((span(350), span(5_000), span(1_550), span(61_900)), ("350 ms".into(), "5 s".into(), "1.5 s".into(), "61 s".into()));
    }
}
