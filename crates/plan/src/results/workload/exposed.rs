//! What of a rank's communication its computations do not hide.

/// A stretch of time of a rank: something that it computes, or communicates of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// What is communicated: an index; `None` for computing.
    pub what: Option<u32>,
    /// When it begins, in picoseconds.
    pub begun_ps: u64,
    /// When it is over.
    pub ended_ps: u64,
}

/// How a rank's time divides.
#[derive(Clone, PartialEq, Debug)]
pub struct Divided {
    /// While something is computed.
    pub compute_ps: u64,
    /// While nothing is computed, by what is communicated; where several things are, each has an equal part.
    pub exposed_ps: Vec<f64>,
    /// While neither is done.
    pub idle_ps: u64,
}

/// Divides the time of a rank from `begun_ps` to `ended_ps`; there are `kinds` kinds of communication.
pub fn divide(stretches: &[Stretch], (begun_ps, ended_ps): (u64, u64), kinds: usize) -> Divided {
    let mut events: Vec<(u64, bool, Option<u32>)> = Vec::with_capacity(2 * stretches.len());
    for stretch in stretches.iter().filter(|stretch| stretch.ended_ps > stretch.begun_ps) {
        events.push((stretch.begun_ps, true, stretch.what));
        events.push((stretch.ended_ps, false, stretch.what));
    }
    events.sort_unstable();
    let mut divided = Divided { compute_ps: 0, exposed_ps: vec![0.0; kinds], idle_ps: 0 };
    let (mut computing, mut under_way, mut all) = (0u32, vec![0u32; kinds], 0u32);
    let mut now = begun_ps;
    for (at, begins, what) in events.into_iter().chain([(ended_ps, false, None)]) {
        let time = at.clamp(now, ended_ps.max(now)) - now;
        if computing > 0 {
            divided.compute_ps += time;
        } else if all > 0 && time > 0 {
            let parts = under_way.iter().zip(&mut divided.exposed_ps).filter(|(count, _)| **count > 0);
            parts.for_each(|(count, exposed)| *exposed += time as f64 * f64::from(*count) / f64::from(all));
        } else {
            divided.idle_ps += time;
        }
        now += time;
        match (what, begins) {
            (None, true) => computing += 1,
            (None, false) => computing = computing.saturating_sub(1),
            (Some(kind), true) => (under_way[kind as usize], all) = (under_way[kind as usize] + 1, all + 1),
            (Some(kind), false) => (under_way[kind as usize], all) = (under_way[kind as usize] - 1, all - 1),
        }
    }
    divided
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(what: Option<u32>, begun_ps: u64, ended_ps: u64) -> Stretch {
        Stretch { what, begun_ps, ended_ps }
    }

    #[test]
    fn what_is_computed_hides_what_is_communicated() {
        // Computes 0..10 and 20..30; kind 0 from 5 to 18, kind 1 from 15 to 35; ends at 40.
        let all = [stretch(None, 0, 10), stretch(None, 20, 30), stretch(Some(0), 5, 18), stretch(Some(1), 15, 35)];
        let divided = divide(&all, (0, 40), 2);
        // Exposed: 10..15 kind 0; 15..18 both; 18..20 kind 1; 30..35 kind 1; idle 35..40.
        assert_eq!(divided, Divided { compute_ps: 20, exposed_ps: vec![6.5, 8.5], idle_ps: 5 });
    }

    #[test]
    fn nothing_is_idle() {
        assert_eq!(divide(&[], (3, 9), 1), Divided { compute_ps: 0, exposed_ps: vec![0.0], idle_ps: 6 });
        let overlapping = [stretch(None, 3, 7), stretch(None, 5, 9)];
        assert_eq!(divide(&overlapping, (3, 9), 0), Divided { compute_ps: 6, exposed_ps: vec![], idle_ps: 0 });
    }
}
