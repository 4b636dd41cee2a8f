//! NetReduce: how long an allreduce takes over machines with several GPUs, by three ways, and when NetReduce's is the fastest (its appendix A;
//! `netreduce 6`).

use crate::{Model, ModelError, Parameter, Quantity};

/// `fanin model netreduce`.
pub(crate) const TIMES: Model = Model {
    name: "netreduce",
    title: "NetReduce: time of an allreduce over machines with several GPUs: flat ring, Tencent's, parallel NetReduce",
    about: "Appendix A of its paper, equations 1 to 6. The text prints the first stage of Tencent's allreduce with a factor of n too many in its\n\
            denominator (M / (n B_intra)); only M / B_intra leads to the equation that follows, which is taken here. Its text has 2.3 as the\n\
            least ratio of bandwidths for 32 GPUs: its formula gives 2.133, and exactly it is 1.867 for 8 GPUs a machine.",
    parameters: &[
        Parameter { key: "message", title: "MB of the gradient (M)", usual: 100.0, whole: false, low: 1e-6, high: 1e9, inclusive: true },
        Parameter { key: "gpus", title: "GPUs in the job (P)", usual: 32.0, whole: true, low: 3.0, high: 1e9, inclusive: true },
        Parameter { key: "per_machine", title: "GPUs in a machine (n)", usual: 8.0, whole: true, low: 1.0, high: 1e6, inclusive: true },
        Parameter {
            key: "intra",
            title: "GB/s within a machine (B_intra)",
            usual: 50.0,
            whole: false,
            low: 1e-6,
            high: 1e9,
            inclusive: true,
        },
        Parameter {
            key: "inter",
            title: "GB/s between machines (B_inter)",
            usual: 12.5,
            whole: false,
            low: 1e-6,
            high: 1e9,
            inclusive: true,
        },
        Parameter { key: "alpha", title: "us of a hop (alpha)", usual: 1.0, whole: false, low: 0.0, high: 1e9, inclusive: true },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "flat_ring_ms", title: "ms of a flat ring (T_fr)", equation: "1" },
        Quantity { key: "tencent_ms", title: "ms of Tencent's allreduce (T_ta)", equation: "2" },
        Quantity { key: "netreduce_ms", title: "ms of parallel NetReduce (T_pn)", equation: "3" },
        Quantity { key: "tencent_more_ms", title: "ms that Tencent's takes more", equation: "4" },
        Quantity { key: "flat_ring_more_ms", title: "ms that a flat ring takes more", equation: "5" },
        Quantity { key: "ratio_exact", title: "B_intra / B_inter from which a flat ring is slower, without hops", equation: "of 5" },
        Quantity { key: "ratio_sufficient", title: "the same, sufficient", equation: "6" },
        Quantity { key: "parallel_ring_ms", title: "ms of parallel rings (PR), as 3 with rings between machines", equation: "of 1 and 3" },
    ],
    evaluate: |parameters| {
        let &[message, gpus, per_machine, intra, inter, alpha] = parameters else { unreachable!("six parameters") };
        if gpus <= per_machine {
            let expected = format!("more than there are in a machine ({per_machine}), or nothing goes between machines");
            return Err(ModelError { key: "gpus", value: gpus, expected });
        }
        // MB over GB/s are ms; hops are in us.
        let machines = Machines { message, gpus, per_machine, intra, inter, alpha: alpha / 1e3 };
        let (flat_ring, tencent, netreduce) = (machines.flat_ring(), machines.tencent(), machines.parallel_netreduce());
        Ok(vec![
            flat_ring,
            tencent,
            netreduce,
            machines.tencent_more(),
            machines.flat_ring_more(),
            machines.ratio_exact(),
            machines.ratio_sufficient(),
            machines.parallel_ring(),
        ])
    },
};

/// A job on several machines, in units that go together: a length over a bandwidth is a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machines {
    /// M: length of the gradient.
    pub message: f64,
    /// P: GPUs of the job.
    pub gpus: f64,
    /// n: GPUs of a machine.
    pub per_machine: f64,
    /// Bandwidth within a machine.
    pub intra: f64,
    /// Bandwidth between machines.
    pub inter: f64,
    /// Time of a hop.
    pub alpha: f64,
}

impl Machines {
    /// Equation 1: one ring over all GPUs.
    pub fn flat_ring(&self) -> f64 {
        let Machines { message, gpus, inter, alpha, .. } = *self;
        2.0 * (gpus - 1.0) * alpha + 2.0 * (gpus - 1.0) / gpus * message / inter
    }

    /// Equation 2, in its three stages: Rabenseifner's reduction to a GPU of each machine, a ring of these, and van de Geijn's broadcast.
    pub fn tencent_stages(&self) -> [f64; 3] {
        let Machines { message, gpus, per_machine: n, intra, inter, alpha } = *self;
        let (steps, machines) = (libm::log2(n), gpus / n);
        [
            2.0 * alpha * steps + 2.0 * (n - 1.0) / n * message / intra,
            2.0 * (machines - 1.0) * alpha + 2.0 * (machines - 1.0) / machines * message / inter,
            (steps + n - 1.0) * alpha + 2.0 * (n - 1.0) / n * message / intra,
        ]
    }

    /// Equation 2.
    pub fn tencent(&self) -> f64 {
        self.tencent_stages().iter().sum()
    }

    /// Equation 3: a reduce-scatter in each machine, a ring of NetReduce for each GPU of a machine, and an all-gather in each.
    pub fn parallel_netreduce(&self) -> f64 {
        let Machines { message, per_machine: n, intra, inter, alpha, .. } = *self;
        (2.0 * n - 1.0) * alpha + (2.0 * (n - 1.0) / (n * intra) + 1.0 / inter) * message
    }

    /// Parallel rings, which the paper describes (3.4) and has no equation for (`baselines 3`): equation 3 with rings in the place of NetReduce. The
    /// rings of a machine share its link, so that together they are one ring of machines with the whole vector.
    pub fn parallel_ring(&self) -> f64 {
        let Machines { message, gpus, per_machine: n, intra, inter, alpha } = *self;
        let machines = gpus / n;
        let inside = 2.0 * (n - 1.0) * alpha + 2.0 * (n - 1.0) / n * message / intra;
        inside + 2.0 * (machines - 1.0) * alpha + 2.0 * (machines - 1.0) / machines * message / inter
    }

    /// Equation 4: how much longer Tencent's allreduce takes than parallel NetReduce.
    pub fn tencent_more(&self) -> f64 {
        let Machines { message, gpus, per_machine: n, intra, inter, alpha } = *self;
        let hops = 2.0 * gpus / n + 3.0 * libm::log2(n) - n - 2.0;
        hops * alpha + ((gpus - 2.0 * n) / (gpus * inter) + 2.0 * (n - 1.0) / (n * intra)) * message
    }

    /// Equation 5: how much longer a flat ring takes.
    pub fn flat_ring_more(&self) -> f64 {
        let Machines { message, gpus, per_machine: n, intra, inter, alpha } = *self;
        (2.0 * gpus - 2.0 * n - 1.0) * alpha + ((gpus - 2.0) / (gpus * inter) - 2.0 * (n - 1.0) / (n * intra)) * message
    }

    /// The least ratio of the bandwidth within machines to that between them for which the second term of equation 5 is not negative, of more
    /// than two GPUs.
    pub fn ratio_exact(&self) -> f64 {
        let Machines { gpus, per_machine: n, .. } = *self;
        2.0 * (n - 1.0) * gpus / (n * (gpus - 2.0))
    }

    /// Equation 6: a ratio that is large enough, whatever n is.
    pub fn ratio_sufficient(&self) -> f64 {
        2.0 * self.gpus / (self.gpus - 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(gpus: f64, intra: f64) -> Vec<f64> {
        TIMES.evaluate(&[100.0, gpus, 8.0, intra, 12.5, 1.0]).expect("in range")
    }

    fn rounded(values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| (value * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn times_are_those_of_the_formulas() {
        assert_eq!(rounded(&evaluate(32.0, 50.0)[..3]), [15.56, 19.02, 11.52]);
        assert_eq!(rounded(&evaluate(1_024.0, 100.0)[..3]), [18.03, 19.65, 9.77]);
        assert_eq!(rounded(&evaluate(32.0, 150.0)[..3]), [15.56, 14.36, 9.18]);
    }

    #[test]
    fn differences_are_those_of_the_times_and_stages_add_up_to_the_closed_form() {
        for (gpus, n, intra, alpha) in [(32.0, 8.0, 15.75, 1e-3), (1_024.0, 16.0, 100.0, 0.1), (12.0, 4.0, 1.0, 0.0), (4.0, 1.0, 3.0, 2.0)]
        {
            let job = Machines { message: 100.0, gpus, per_machine: n, intra, inter: 12.5, alpha };
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * a.abs().max(1.0);
            assert!(close(job.tencent_more(), job.tencent() - job.parallel_netreduce()));
            assert!(close(job.flat_ring_more(), job.flat_ring() - job.parallel_netreduce()));
            let hops = (n * n + 3.0 * n * libm::log2(n) - 3.0 * n + 2.0 * gpus) / n;
            let closed = hops * alpha + (4.0 * (n - 1.0) / (n * intra) + 2.0 * (gpus - n) / (gpus * 12.5)) * 100.0;
            assert!(close(job.tencent(), closed));
        }
    }

    /// The paper says 2.3 for 32 GPUs, and that NetReduce is the fastest for all bandwidths above that of PCIe.
    #[test]
    fn the_papers_ratio_is_not_that_of_its_formula() {
        let quantities = evaluate(32.0, 15.75);
        assert_eq!(rounded(&quantities[5..7]), [1.87, 2.13]);
        assert!(quantities[4] < 0.0, "with PCIe a flat ring is faster: {quantities:?}");
        let at_threshold = evaluate(32.0, 12.5 * quantities[5]);
        // What is left is the hops: 2 P - 2 n - 1 of 1 us.
        assert!((at_threshold[4] - 0.047).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_netreduce_does_not_depend_on_the_number_of_gpus() {
        assert_eq!(evaluate(32.0, 50.0)[2], evaluate(1_024.0, 50.0)[2]);
        let one = Machines { message: 100.0, gpus: 4.0, per_machine: 1.0, intra: 5.0, inter: 12.5, alpha: 0.5 };
        assert_eq!(one.parallel_netreduce(), 0.5 + 8.0, "a + M / B with one GPU a machine");
    }

    /// With one GPU a machine parallel rings are a ring; and two machines reduce in a ring as fast as by NetReduce, but for a hop.
    #[test]
    fn parallel_rings_lie_between_a_ring_and_netreduce() {
        let job = |gpus, per_machine| Machines { message: 100.0, gpus, per_machine, intra: 50.0, inter: 12.5, alpha: 1e-3 };
        assert!((job(32.0, 1.0).parallel_ring() - job(32.0, 1.0).flat_ring()).abs() < 1e-9);
        assert!((job(16.0, 8.0).parallel_ring() - job(16.0, 8.0).parallel_netreduce() - 1e-3).abs() < 1e-9);
        assert!((evaluate(32.0, 50.0)[7] - 15.52).abs() < 0.005);
    }

    #[test]
    fn a_job_within_one_machine_is_refused() {
        let refused = TIMES.evaluate(&[100.0, 8.0, 8.0, 50.0, 12.5, 1.0]).expect_err("refused").to_string();
        assert_eq!(refused, "gpus = 8: expected more than there are in a machine (8), or nothing goes between machines");
    }
}
