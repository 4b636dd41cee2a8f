//! What the demo prints: per iteration, over all of them, and whether all is as it must be.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::DemoArgs;
use super::messages::{ChildStatistics, Ended, PathFacts};

/// One operation, as all workers saw it.
pub(super) struct Iteration {
    pub(super) number: u32,
    /// How it ended, by rank; `None` for a worker that is no more.
    pub(super) ended: Vec<Option<Ended>>,
    /// How long it took, by rank; 0 for a worker that is no more.
    pub(super) seconds: Vec<f64>,
    cpu_seconds: f64,
    /// Wrong elements by rank, and the first of them; `None` where nothing was compared, as the worker has no sums.
    wrong: Vec<Option<(u64, Option<u64>)>>,
    /// Processes that were lost up to now.
    pub(super) lost: Vec<String>,
}

impl Iteration {
    pub(super) fn new(number: u32, workers: u32) -> Self {
        let count = workers as usize;
        Iteration {
            number,
            ended: vec![None; count],
            seconds: vec![0.0; count],
            cpu_seconds: 0.0,
            wrong: vec![None; count],
            lost: Vec::new(),
        }
    }

    pub(super) fn finish(&mut self, rank: u32, seconds: f64, cpu_seconds: f64, ended: Ended) {
        self.ended[rank as usize] = Some(ended);
        self.seconds[rank as usize] = seconds;
        self.cpu_seconds += cpu_seconds;
    }

    pub(super) fn verify(&mut self, rank: u32, wrong: u64, first_wrong: Option<u64>) {
        self.wrong[rank as usize] = Some((wrong, first_wrong));
    }

    /// The time of the slowest worker.
    pub(super) fn slowest_s(&self) -> Option<f64> {
        self.seconds.iter().copied().reduce(f64::max).filter(|slowest| *slowest > 0.0)
    }

    /// Whether the operation is complete at every worker that is still there.
    pub(super) fn survivors_done(&self) -> bool {
        self.ended.iter().flatten().all(|ended| *ended == Ended::Done)
    }

    /// Whether every element of every worker is right.
    fn exact(&self) -> bool {
        self.wrong.iter().all(|wrong| matches!(wrong, Some((0, _))))
    }
}

/// All that is known at the end.
pub(super) struct Summary {
    /// The system's name.
    pub(super) system: String,
    pub(super) iterations: Vec<Iteration>,
    /// How vectors travelled.
    pub(super) path: PathFacts,
    /// By node; `None` for one that is no more.
    pub(super) statistics: Vec<Option<ChildStatistics>>,
}

impl Summary {
    /// Goodput in MB/s (10^6 bytes) of every complete iteration.
    fn goodputs(&self, args: &DemoArgs) -> Vec<f64> {
        let complete = self.iterations.iter().filter(|iteration| iteration.exact());
        complete.filter_map(|iteration| Some(args.size as f64 / iteration.slowest_s()? / 1e6)).collect()
    }

    fn median_goodput(&self, args: &DemoArgs) -> Option<f64> {
        let mut goodputs = self.goodputs(args);
        goodputs.sort_by(f64::total_cmp);
        let middle = goodputs.len() / 2;
        if goodputs.len() % 2 == 1 {
            goodputs.get(middle).copied()
        } else {
            Some((goodputs.get(middle)? + goodputs.get(middle - 1)?) / 2.0)
        }
    }

    /// CPU seconds of all processes for each GiB of vector.
    fn cpu_s_per_gib(&self, args: &DemoArgs) -> Option<f64> {
        let complete = self.goodputs(args).len();
        if args.size == 0 || complete == 0 || complete < self.iterations.len() {
            return None;
        }
        let workers: f64 = self.iterations.iter().map(|iteration| iteration.cpu_seconds).sum();
        let switches: f64 = self.statistics.iter().flatten().map(|statistics| statistics.cpu_seconds).sum();
        Some((workers + switches) / complete as f64 / (args.size as f64 / f64::from(1 << 30)))
    }

    /// Sums over all processes of counts by name.
    fn totals(&self, of: impl Fn(&ChildStatistics) -> &Vec<(String, u64)>) -> BTreeMap<&str, u64> {
        let mut totals = BTreeMap::new();
        for (name, count) in self.statistics.iter().flatten().flat_map(of) {
            *totals.entry(name.as_str()).or_default() += count;
        }
        totals
    }

    fn total(&self, of: impl Fn(&ChildStatistics) -> u64) -> u64 {
        self.statistics.iter().flatten().map(of).sum()
    }

    /// For people.
    pub(super) fn table(&self, args: &DemoArgs) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}: {} workers, {} bytes of float32, over {}\n", self.system, args.workers, args.size, self.path.text);
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(["iteration", "slowest worker, ms", "goodput, MB/s", "sums"]);
        for iteration in &self.iterations {
            let slowest = iteration.slowest_s().unwrap_or(0.0);
            let wrong: u64 = iteration.wrong.iter().flatten().map(|(wrong, _)| wrong).sum();
            let sums = if !iteration.survivors_done() {
                "not complete".to_string()
            } else if wrong > 0 {
                format!("{wrong} WRONG")
            } else if iteration.exact() {
                "exact at every worker".to_string()
            } else {
                "exact at every survivor".to_string()
            };
            let goodput = if iteration.exact() && slowest > 0.0 { format!("{:.1}", args.size as f64 / slowest / 1e6) } else { "-".into() };
            table.add_row([(iteration.number + 1).to_string(), format!("{:.3}", slowest * 1e3), goodput, sums]);
        }
        for column in 0..3 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let _ = writeln!(out, "{table}\n");
        self.lines(args, &mut out);
        out
    }

    fn lines(&self, args: &DemoArgs, out: &mut String) {
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<26}{value}");
        };
        if let Some(median) = self.median_goodput(args) {
            line("goodput, median", format!("{median:.1} MB/s of tensor"));
        }
        if let Some(cpu) = self.cpu_s_per_gib(args) {
            line("CPU, all processes", format!("{cpu:.2} s per GiB of tensor"));
        }
        let (datagrams, calls) = (self.total(|statistics| statistics.datagrams), self.total(|statistics| statistics.send_calls));
        if self.path.payload_bytes.is_some() {
            line("packets sent", format!("{datagrams}, {:.1} per system call", datagrams as f64 / calls.max(1) as f64));
            line("packets sent again", listed(&self.totals(|statistics| &statistics.retransmitted)));
            line("packets dropped", listed(&self.totals(|statistics| &statistics.dropped)));
            line("faults injected", listed(&self.totals(|statistics| &statistics.injected)));
        }
        let refused = self.total(|statistics| statistics.refused_by_kernel);
        if refused > 0 {
            line("refused by the kernel", format!("{refused} packets: longer than the link takes?"));
        }
        if let Some(bytes) = self.path.receive_buffer_bytes {
            line("receive buffers", format!("{bytes} bytes at least"));
        }
        for lost in self.iterations.last().iter().flat_map(|iteration| &iteration.lost) {
            line("process lost", lost.clone());
        }
        for (rank, ended) in self.iterations.iter().flat_map(|iteration| iteration.ended.iter().enumerate()) {
            if let Some(Ended::Failed { text, .. }) = ended {
                line(&format!("worker {rank} says"), text.clone());
            }
        }
    }

    /// For programs.
    pub(super) fn json(&self, args: &DemoArgs) -> Result<String> {
        let iterations: Vec<Value> = self
            .iterations
            .iter()
            .map(|iteration| {
                json!({
                    "iteration": iteration.number + 1,
                    "completion_us": iteration.slowest_s().map(|slowest| slowest * 1e6),
                    "exact": iteration.exact(),
                    "ended": iteration.ended,
                    "wrong": iteration.wrong.iter().map(|wrong| wrong.map(|(count, _)| count)).collect::<Vec<_>>(),
                    "lost": iteration.lost,
                })
            })
            .collect();
        Ok(serde_json::to_string(&json!({
            "system": self.system,
            "workers": args.workers,
            "message_bytes": args.size,
            "seed": args.seed,
            "path": self.path.text,
            "params": {
                "payload_bytes": self.path.payload_bytes,
                "window": self.path.window,
                "loss": args.loss,
                "duplicate": args.duplicate,
                "reorder": args.reorder,
                "corrupt": args.corrupt,
                "patience_s": args.patience,
            },
            "iterations": iterations,
            "goodput_mb_per_s": self.median_goodput(args),
            "cpu_s_per_gib": self.cpu_s_per_gib(args),
            "packets_sent": self.total(|statistics| statistics.packets_sent),
            "packets_received": self.total(|statistics| statistics.packets_received),
            "datagrams": self.total(|statistics| statistics.datagrams),
            "send_calls": self.total(|statistics| statistics.send_calls),
            "retransmitted": self.totals(|statistics| &statistics.retransmitted),
            "dropped": self.totals(|statistics| &statistics.dropped),
            "injected": self.totals(|statistics| &statistics.injected),
            "refused_by_kernel": self.total(|statistics| statistics.refused_by_kernel),
            "slot_bytes_peak": self.statistics.iter().flatten().map(|statistics| statistics.slot_bytes_peak).max(),
            "receive_buffer_bytes": self.path.receive_buffer_bytes,
        }))?)
    }

    /// Whether all is as it must be.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn verdict(&self, args: &DemoArgs) -> Result<()> {
        let broken = self.total(|statistics| statistics.broken);
        ensure!(broken == 0, "{broken} broken invariants: see the log");
        for iteration in &self.iterations {
            for (rank, wrong) in iteration.wrong.iter().enumerate() {
                if let Some((wrong @ 1.., first)) = wrong {
                    bail!("iteration {}: {wrong} wrong elements at worker {rank}, the first one at {first:?}", iteration.number + 1);
                }
            }
        }
        let Some(last) = self.iterations.last() else { bail!("nothing was run") };
        let Some(killed) = args.kill else {
            ensure!(last.survivors_done(), "iteration {} is not complete", last.number + 1);
            ensure!(last.lost.is_empty(), "processes were lost: {}", last.lost.join(", "));
            return Ok(());
        };
        for (rank, ended) in last.ended.iter().enumerate().filter(|(rank, _)| *rank != killed as usize) {
            match ended {
                Some(Ended::Failed { suspect_rank: Some(suspect), .. }) if *suspect == killed => {}
                Some(Ended::Failed { text, .. }) => bail!("worker {rank} does not name worker {killed}, which was killed: {text}"),
                // The worker that was killed had sent all that this one needed: an exact result is no less valid for what happened later.
                Some(Ended::Done) => ensure!(last.wrong[rank].is_some(), "the sums of worker {rank} were not compared"),
                None => bail!("worker {rank} has ended too"),
            }
        }
        ensure!(!last.survivors_done(), "no worker knows of the end of worker {killed}");
        Ok(())
    }
}

/// Counts by name in one line.
fn listed(totals: &BTreeMap<&str, u64>) -> String {
    if totals.is_empty() {
        return "none".into();
    }
    totals.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}
