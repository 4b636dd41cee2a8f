//! Lists of ranks as text: `0-7`, `0-56:8` (every eighth), `0-3, 9`.

/// Ranks of a workload at most.
pub const RANKS_MAX: u32 = 1 << 20;

/// What is expected where ranks are read.
pub const RANKS_EXPECTED: &str = "ranks below the workload's number, such as \"0-7\", \"0-56:8\" or \"0-3, 9\"";

/// The ranks that a text means, in its order; `None` where it cannot be read, a rank is `ranks` or more, or there are more than `ranks`.
pub fn ranks_of(text: &str, ranks: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, step.trim().parse::<u32>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?),
            None if step == 1 => {
                let one = range.trim().parse::<u32>().ok()?;
                (one, one)
            }
            None => return None,
        };
        if first > last || last >= ranks || all.len() as u64 + u64::from((last - first) / step) + 1 > u64::from(ranks) {
            return None;
        }
        all.extend((first..=last).step_by(step as usize));
    }
    Some(all)
}

/// The shortest such text that gives these ranks in this order.
pub fn ranks_text(ranks: &[u32]) -> String {
    let mut parts = Vec::new();
    let mut rest = ranks;
    while let Some((&first, more)) = rest.split_first() {
        let step = more.first().and_then(|next| next.checked_sub(first)).filter(|step| *step > 0);
        let run = match step {
            Some(step) => 1 + rest.windows(2).take_while(|pair| pair[1].checked_sub(pair[0]) == Some(step)).count(),
            None => 1,
        };
        // Two ranks with a distance are shorter as they are.
        let run = if run == 2 && step != Some(1) { 1 } else { run };
        let last = rest[run - 1];
        parts.push(match step {
            _ if run == 1 => first.to_string(),
            Some(1) => format!("{first}-{last}"),
            Some(step) => format!("{first}-{last}:{step}"),
            None => first.to_string(),
        });
        rest = &rest[run..];
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_in_their_order_and_written_short() {
        for (text, ranks) in
            [("0-3", vec![0, 1, 2, 3]), ("0-6:2, 9", vec![0, 2, 4, 6, 9]), ("5", vec![5]), ("7, 2", vec![7, 2]), ("0, 4", vec![0, 4])]
        {
            assert_eq!(ranks_of(text, 10), Some(ranks.clone()), "{text}");
            assert_eq!(ranks_text(&ranks), text);
        }
        assert_eq!(ranks_text(&[]), "");
    }

    #[test]
    fn what_is_too_large_or_no_list_is_refused() {
        for text in ["", "a", "0-10", "3-1", "0-4:0", "3:2", "-1", "0-9, 0-9, 0", "1,,2", "0-4294967295"] {
            assert_eq!(ranks_of(text, 10), None, "{text}");
        }
    }
}
