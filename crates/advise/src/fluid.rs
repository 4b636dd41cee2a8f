//! Jobs share links and adders as a fluid: all at once, each as fast as the tightest thing that it uses lets it.

/// What jobs use together: a link, or the adder of a switch's port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Resource {
    /// Bits per second.
    pub capacity: f64,
}

/// A job, as a fluid.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// By resource: its number, and bits for each byte of the job's vector.
    pub loads: Vec<(usize, f64)>,
    /// Bytes of the vector a second that the job's own windows and steps allow.
    pub most: f64,
    /// What of a full queue is the job's, beside other jobs: its windows.
    pub weight: f64,
    /// Bytes of the vector.
    pub bytes: f64,
    /// When it begins, in seconds.
    pub start: f64,
}

/// What holds a job up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// This resource is full.
    Full(usize),
    /// Its own windows or steps.
    Own,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ended {
    /// When its last byte is through, in seconds.
    pub at: f64,
    /// What held it up for the longest time.
    pub binding: Binding,
}

/// Rates of these jobs at one moment, in bytes of their vectors a second, and what binds each. Rates rise together, in proportion to weights,
/// until something is full: queues are first in, first out, so jobs with fixed windows have of a full link what is theirs of its queue.
pub fn rates(resources: &[Resource], flows: &[&Flow]) -> Vec<(f64, Binding)> {
    let mut found: Vec<Option<(f64, Binding)>> = vec![None; flows.len()];
    let mut left: Vec<f64> = resources.iter().map(|resource| resource.capacity).collect();
    let mut at = vec![0.0; flows.len()];
    while found.iter().any(Option::is_none) {
        let open = |flow: &usize| found[*flow].is_none();
        let mut growth = vec![0.0; resources.len()];
        for flow in (0..flows.len()).filter(open) {
            for (resource, load) in &flows[flow].loads {
                growth[*resource] += load * flows[flow].weight;
            }
        }
        let full = (0..resources.len()).filter(|one| growth[*one] > 0.0).map(|one| (left[one].max(0.0) / growth[one], Binding::Full(one)));
        let own = (0..flows.len()).filter(open).map(|flow| ((flows[flow].most - at[flow]).max(0.0) / flows[flow].weight, Binding::Own));
        let Some((rise, what)) = full.chain(own).min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        for flow in (0..flows.len()).filter(open) {
            at[flow] += rise * flows[flow].weight;
        }
        for (resource, growth) in growth.iter().enumerate() {
            left[resource] -= rise * growth;
        }
        let mut froze = false;
        for flow in 0..flows.len() {
            if found[flow].is_some() {
                continue;
            }
            let is_bound = match what {
                Binding::Full(resource) => flows[flow].loads.iter().any(|(uses, load)| *uses == resource && *load > 0.0),
                Binding::Own => at[flow] >= flows[flow].most * (1.0 - 1e-9),
            };
            if is_bound {
                found[flow] = Some((at[flow], what));
                froze = true;
            }
        }
        if !froze {
            break;
        }
    }
    found.into_iter().zip(at).map(|(found, at)| found.unwrap_or((at, Binding::Own))).collect()
}

/// Runs jobs to their ends: rates change when one begins or ends.
pub fn run(resources: &[Resource], flows: &[Flow]) -> Vec<Ended> {
    let mut left: Vec<f64> = flows.iter().map(|flow| flow.bytes).collect();
    let mut ended = vec![Ended { at: f64::INFINITY, binding: Binding::Own }; flows.len()];
    let mut bound: Vec<Vec<(Binding, f64)>> = vec![Vec::new(); flows.len()];
    let mut now = flows.iter().map(|flow| flow.start).fold(f64::INFINITY, f64::min);
    while left.iter().any(|left| *left > 0.0) {
        let running: Vec<usize> = (0..flows.len()).filter(|flow| left[*flow] > 0.0 && flows[*flow].start <= now).collect();
        let begins = flows.iter().map(|flow| flow.start).filter(|start| *start > now).fold(f64::INFINITY, f64::min);
        let of: Vec<&Flow> = running.iter().map(|flow| &flows[*flow]).collect();
        let rates = rates(resources, &of);
        let ends = running.iter().zip(&rates).map(|(flow, (rate, _))| now + left[*flow] / rate.max(1e-3)).fold(f64::INFINITY, f64::min);
        let next = begins.min(ends);
        if !next.is_finite() {
            break;
        }
        for (flow, (rate, binding)) in running.iter().zip(&rates) {
            left[*flow] -= rate.max(1e-3) * (next - now);
            match bound[*flow].iter_mut().find(|(known, _)| known == binding) {
                Some((_, time)) => *time += next - now,
                None => bound[*flow].push((*binding, next - now)),
            }
            if left[*flow] <= flows[*flow].bytes * 1e-9 {
                left[*flow] = 0.0;
                let longest = bound[*flow].iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Binding::Own, |(binding, _)| *binding);
                ended[*flow] = Ended { at: next, binding: longest };
            }
        }
        now = next;
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(loads: &[(usize, f64)], bytes: f64) -> Flow {
        Flow { loads: loads.to_vec(), most: f64::INFINITY, weight: 1.0, bytes, start: 0.0 }
    }

    #[test]
    fn jobs_share_what_they_both_use_and_take_what_others_leave() {
        let resources = [Resource { capacity: 80.0 }, Resource { capacity: 800.0 }];
        let flows = [flow(&[(0, 8.0), (1, 8.0)], 10.0), flow(&[(0, 8.0)], 5.0), flow(&[(1, 8.0)], 950.0)];
        let shares = rates(&resources, &flows.iter().collect::<Vec<_>>());
        assert_eq!(shares.iter().map(|(rate, _)| *rate).collect::<Vec<_>>(), [5.0, 5.0, 95.0]);
        assert_eq!(shares[2].1, Binding::Full(1));
        let ended = run(&resources, &flows);
        assert!(
            (ended[1].at - 1.0).abs() < 1e-6 && (ended[0].at - 1.5).abs() < 1e-6,
            "{ended:?}: the first has all when the second is gone"
        );
    }

    #[test]
    fn windows_bound_and_weigh() {
        let resources = [Resource { capacity: 80.0 }];
        let mut flows = [flow(&[(0, 8.0)], 1.0), flow(&[(0, 8.0)], 1.0)];
        flows[0].most = 2.0;
        let of = |flows: &[Flow]| rates(&resources, &flows.iter().collect::<Vec<_>>()).iter().map(|(rate, _)| *rate).collect::<Vec<_>>();
        assert_eq!(of(&flows), [2.0, 8.0]);
        flows[0].most = f64::INFINITY;
        flows[0].weight = 3.0;
        assert_eq!(of(&flows), [7.5, 2.5]);
    }
}
