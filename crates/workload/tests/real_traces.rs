//! Public traces, taken over: run with `--ignored` and FANIN_TRACES naming the folder that holds them. They are no part of the repository.

use std::fs;
use std::path::PathBuf;

use fanin_workload::generate::{Settings, generate};
use fanin_workload::import::{Format, Imported, Input, Options, import};
use fanin_workload::network::{self, ImportedNetwork, NetworkFormat};
use fanin_workload::{Action, CollectiveKind, Element, Summary, Workload, durations, validate};

fn inputs(names: &[&str]) -> Vec<Input> {
    let folder = PathBuf::from(std::env::var_os("FANIN_TRACES").expect("FANIN_TRACES names the folder of the traces"));
    let read = |name: &&str| Input::new(name, fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")));
    names.iter().map(read).collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"))
}

/// The summary, after what is written was read again.
fn taken(names: &[&str], options: &Options) -> (Summary, Imported) {
    let inputs = inputs(names);
    let format = Format::of(&inputs[0]).expect("a known format");
    let found = import(format, &inputs, options).unwrap_or_else(|error| panic!("{error}"));
    let text = found.workload.to_toml();
    let again = Workload::from_toml("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.to_toml(), text);
    let checked = validate(&again, "w.toml").unwrap_or_else(|error| panic!("{error}"));
    (Summary::new(&again, &checked), found)
}

/// Times of a workload's computations in picoseconds, as they are written.
fn times(workload: &Workload) -> Vec<u64> {
    let nodes = workload.programs.iter().flat_map(|program| &program.nodes);
    nodes.filter_map(|node| if let Action::Compute(time) = node.action { Some(time.as_ps()) } else { None }).collect()
}

fn row(summary: &Summary, kind: CollectiveKind, group: &str) -> (u64, u64, u64) {
    let row = summary.collectives.iter().find(|row| row.kind == kind && row.group == group);
    row.map(|row| (row.of_rank, row.lengths, row.bytes_of_rank)).unwrap_or_else(|| panic!("{kind} of {group}: {:?}", summary.collectives))
}

/// A module of its own, so that runs of all ignored tests can leave them out by its name.
mod public_traces {
    use super::*;

    #[test]
    #[ignore = "needs the public traces"]
    fn resnet50_has_three_iterations_of_five_buckets() {
        let (summary, found) = taken(&["kineto-resnet50-ddp.json.gz"], &Options::default());
        assert_eq!((summary.ranks, summary.iterations, summary.programs), (2, 3, 1));
        assert_eq!(row(&summary, CollectiveKind::AllReduce, "default_pg"), (15, 5, 3 * 25_557_032 * 4));
        let sums = summary.collectives.iter().find(|row| row.kind == CollectiveKind::AllReduce).expect("sums");
        assert_eq!((sums.element, sums.elements_an_iteration(3)), (Element::F32, 25_557_032));
        let broadcasts: u64 = summary.collectives.iter().filter(|row| row.kind == CollectiveKind::Broadcast).map(|row| row.of_rank).sum();
        assert_eq!(broadcasts, 6);
        // The profiler saw 667 ms of three steps; sums lie within the backward pass, so that they hardly make it longer.
        let span = summary.span.expect("small enough").as_s_f64();
        assert!((0.6..0.67).contains(&span), "{span} s");
        assert!(found.report.left_out.iter().all(|one| one.what.starts_with("events that are no work of the GPU")), "{:?}", found.report);
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn a_generated_resnet50_computes_as_long_as_the_traced_one() {
        let inputs = inputs(&["kineto-resnet50-ddp.json.gz"]);
        let mut made = generate(&Settings { data: 32, ranks_per_host: 1, ..Settings::new("resnet50") }).unwrap();
        let computed: Vec<u64> = times(&made);
        let found = durations::apply(&mut made, &inputs).unwrap_or_else(|error| panic!("{error}"));
        // 54 layers forward and backward, all between the five buckets of three iterations.
        assert_eq!((found.by_name, found.by_collectives, found.computed, found.iterations), (0, 108, 0, 3), "{:?}", found.report);
        let measured = times(&made);
        assert!(measured.iter().zip(&computed).all(|(measured, computed)| measured > computed), "an H100 at 40 % is faster in each layer");
        // The trace computes for 660.55 ms in three iterations.
        let all_ms = measured.iter().sum::<u64>() as f64 / 1e9;
        assert!((all_ms - 660.55 / 3.0).abs() < 0.01, "{all_ms} ms");
        let left: Vec<&str> = found.report.left_out.iter().map(|one| one.what.as_str()).collect();
        assert!(left.contains(&"collectives of the trace that the model does not have"), "{left:?}");
        assert!(left.contains(&"named times of the trace that are no computation of the model"), "{left:?}");
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn four_ranks_of_chakra_sum_one_mebibyte() {
        let names: Vec<String> = (0..4).map(|rank| format!("chakra-allreduce-4x1MB.{rank}.et")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (summary, _) = taken(&names, &Options::default());
        assert_eq!((summary.ranks, summary.programs, summary.nodes), (4, 1, 4));
        assert_eq!(row(&summary, CollectiveKind::AllReduce, "all"), (1, 1, 1 << 20));
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn layers_of_aicb_are_those_of_its_file() {
        let (summary, found) = taken(&["aicb-gpt175b-tp8.txt"], &Options { ranks: Some(64), ..Options::default() });
        // 24 layers of attention and perceptron, the embedding and its norm, and three of the loss, which have 24 + 2 + 2 sums each way.
        assert_eq!(row(&summary, CollectiveKind::AllReduce, "tp").0, 24 + 5 + 2);
        assert_eq!(row(&summary, CollectiveKind::ReduceScatter, "dp"), (1, 1, 11_175_321_600));
        assert_eq!(row(&summary, CollectiveKind::AllGather, "dp"), (1, 1, 1));
        assert_eq!(found.report.left_out, []);
        let (summary, _) = taken(&["simai-micro-allreduce.txt"], &Options::default());
        assert_eq!((summary.ranks, row(&summary, CollectiveKind::AllReduce, "tp")), (8, (2, 2, 16_777_216 + 67_108_864)));
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn calls_of_aicb_are_those_of_its_file() {
        let (summary, _) = taken(&["aicb-gpt13b-tp8.csv"], &Options::default());
        assert_eq!((summary.ranks, summary.iterations), (128, 1));
        assert_eq!(row(&summary, CollectiveKind::AllGather, "dp").0, 3);
        assert_eq!(row(&summary, CollectiveKind::Broadcast, "tp").0, 3);
        assert_eq!(row(&summary, CollectiveKind::ReduceScatter, "dp").0, 1);
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn a_tree_of_goal_has_31_messages() {
        let (summary, _) = taken(&["goal-binary-tree-32.goal"], &Options::default());
        let sends = summary.sends.expect("sends");
        assert_eq!((summary.ranks, sends.in_all, sends.of_rank, sends.bytes), (32, 31, 5, (1, 1)));
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn a_ring_of_msccl_sends_14_chunks_a_gpu() {
        let (summary, _) = taken(&["msccl-ring-8.xml"], &Options { bytes: Some(8 << 20), ..Options::default() });
        let sends = summary.sends.expect("sends");
        assert_eq!((summary.ranks, sends.of_rank, sends.in_all, sends.bytes), (8, 14, 8 * 14, (1 << 20, 1 << 20)));
    }

    fn network(name: &str) -> ImportedNetwork {
        let input = inputs(&[name]).remove(0);
        let format = NetworkFormat::of(&input).expect("a known format");
        network::import(format, &input).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn networks_have_the_size_that_their_files_say() {
        let size = |found: &ImportedNetwork| (found.network.hosts(), found.network.switches(), found.network.cable_count());
        let found = network("htsim-leaf-spine-1024.topo");
        assert_eq!(size(&found), (1024, 32 + 32, 1024 + 32 * 32));
        let found = network("htsim-leaf-spine-8192-8to1.topo");
        assert_eq!(size(&found), (8192, 128 + 8, 8192 + 128 * 8));
        assert!(found.network.to_toml("x").len() < 20_000);
        // Eight GPUs and eight cards, each pair below a PCIe switch, four of these a processor.
        let found = network("nccl-topo-ndv5.xml");
        assert_eq!(size(&found), (8, 2 + 8 + 8, 8 + 8 + 8 + 1));
    }

    #[test]
    #[ignore = "needs the public traces"]
    fn damaged_traces_are_errors_and_no_panics() {
        let names = [
            "chakra-allreduce-4x1MB.0.et",
            "aicb-gpt175b-tp8.txt",
            "aicb-gpt13b-tp8.csv",
            "simai-micro-allreduce.txt",
            "goal-binary-tree-32.goal",
            "kineto-resnet50-ddp.json.gz",
        ];
        for (number, input) in inputs(&names).into_iter().enumerate() {
            let format = Format::of(&input).expect("a known format");
            let large = input.bytes.len() > 1 << 20;
            for index in 0..if large { 40 } else { 2_000u64 } {
                let dice = fanin_core::hash::mix(number as u64, index);
                let mut damaged = input.clone();
                let at = dice as usize % damaged.bytes.len();
                if index % 3 == 0 {
                    damaged.bytes.truncate(at);
                } else {
                    damaged.bytes[at] ^= 1 << (dice >> 61);
                }
                let _ = Format::of(&damaged);
                if let Ok(found) = import(format, &[damaged], &Options::default()) {
                    let _ = validate(&found.workload, "w.toml");
                }
            }
        }
    }
}
