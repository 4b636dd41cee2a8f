//! Generated workloads: what must add up, and what is refused.

use fanin_workload::generate::{Recompute, Settings, Sharding, generate};
use fanin_workload::{CollectiveKind, Summary, Workload, validate};

fn made(settings: &Settings) -> (Workload, Summary) {
    let workload = generate(settings).unwrap_or_else(|error| panic!("{error}"));
    let text = workload.to_toml();
    let again = Workload::from_toml("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.to_toml(), text);
    let checked = validate(&again, "w.toml").unwrap_or_else(|error| panic!("{error}"));
    assert!(checked.run.is_some(), "it is run through");
    let summary = Summary::new(&again, &checked);
    (again, summary)
}

fn row(summary: &Summary, kind: CollectiveKind, group: &str) -> (u64, u64, u64) {
    let row = summary.collectives.iter().find(|row| row.kind == kind && row.group == group);
    row.map(|row| (row.of_rank, row.in_all, row.bytes_of_rank)).unwrap_or_else(|| panic!("{kind} of {group}: {:?}", summary.collectives))
}

#[test]
fn resnet50_sums_five_buckets() {
    let (_, summary) = made(&Settings { data: 4, ..Settings::new("resnet50") });
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "data"), (5, 5, 25_557_032 * 4));
    // 32 images, three times 2 x 4.09 thousand million operations, at 40 % of 989 TFLOPS: 1.98 ms.
    let compute = summary.compute.0.as_us_f64() / 1e3;
    assert!((compute / (32.0 * 3.0 * 8.18e9 / (0.4 * 989e12) * 1e3) - 1.0).abs() < 0.01, "{compute} ms");
    let (_, summary) = made(&Settings { data: 2, micro_batches: 3, ..Settings::new("vgg16") });
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "data").2, 138_357_544 * 4);
}

#[test]
fn llama3_70b_on_512_ranks_is_small_and_adds_up() {
    let settings = Settings { data: 8, tensor: 8, pipeline: 8, micro_batches: 16, ..Settings::new("llama3-70b") };
    let (workload, summary) = made(&settings);
    assert!(workload.to_toml().len() < 200_000, "{} bytes", workload.to_toml().len());
    assert_eq!((summary.ranks, summary.hosts, summary.programs), (512, 64, 8));
    // Four sums a layer, ten layers a stage, sixteen passes, and in the first stage one more for each embedding.
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "tensor").0, 4 * 10 * 16 + 16);
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "tensor").1, (4 * 80 * 16 + 16) * 8);
    // All gradients once, over all stages and all ranks of a layer.
    let gradients: u64 = workload_bytes(&workload, CollectiveKind::ReduceScatter);
    assert!((gradients as f64 / (70_553_706_496.0 / 8.0 * 4.0) - 1.0).abs() < 1e-6, "{gradients}");
    // Activations forward and back between stages.
    assert_eq!(summary.sends.map(|sends| (sends.of_rank, sends.bytes)), Some((32, (8192 * 8192 * 2, 8192 * 8192 * 2))));
    // 1F1B: as if each of 16 + 7 passes took as long as one stage; stages at the ends take longer.
    let one = summary.compute.0.as_s_f64() / 16.0;
    let span = summary.span.expect("run").as_s_f64();
    assert!(span > 22.9 * one && span < 1.25 * 23.0 * one, "{span} s, {one} s a pass");
    // Three times two operations a parameter and token, and attention beside it.
    let all = summary.compute.0.as_s_f64() * 64.0 * 8.0;
    let least = 6.0 * 70.0e9 * 8192.0 * 16.0 * 8.0 / (0.4 * 989e12);
    assert!(all > least && all < 1.35 * least, "{all} s beside {least}");
}

/// Bytes of the first rank of each program, all programs together.
fn workload_bytes(workload: &Workload, kind: CollectiveKind) -> u64 {
    let nodes = workload.programs.iter().flat_map(|program| &program.nodes);
    nodes
        .filter_map(|node| match &node.action {
            fanin_workload::Action::Collective(collective) if collective.kind == kind => Some(collective.bytes),
            _ => None,
        })
        .sum()
}

#[test]
fn fsdp_gathers_twice_and_scatters_once() {
    let settings = Settings { data: 64, sharding: Some(Sharding::Fsdp), ..Settings::new("llama3-8b") };
    let (_, summary) = made(&settings);
    let (gathers, _, gathered) = row(&summary, CollectiveKind::AllGather, "data");
    assert_eq!(gathers, 32 * 2 + 1);
    let root = 2 * 128_256 * 4_096 + 4_096;
    assert_eq!(gathered, (2 * (8_030_261_248 - root) + root) * 2);
    assert_eq!(row(&summary, CollectiveKind::ReduceScatter, "data"), (33, 33, 8_030_261_248 * 4));
}

#[test]
fn fsdp_gathers_two_layers_ahead_at_most_and_sums_the_embedding() {
    let settings = Settings { data: 2, tensor: 2, micro_batches: 2, sharding: Some(Sharding::Fsdp), ..Settings::new("llama3-8b") };
    let (workload, summary) = made(&settings);
    let nodes = &workload.programs[0].nodes;
    let after = |id: &str| -> Vec<&str> {
        let node = nodes.iter().find(|node| &*node.id == id).unwrap_or_else(|| panic!("{id}"));
        node.after.iter().map(|before| &*nodes[*before as usize].id).collect()
    };
    // The first gathers of a pass are no further ahead than all others.
    assert_eq!(after("gather for forward 0.2"), ["forward 0.0"]);
    assert_eq!(after("gather for backward 0.31"), ["forward 0.30"]);
    for id in ["gather for embedding 1", "gather for forward 1.0"] {
        assert_eq!(after(id), ["backward 0.1"], "{id}");
    }
    assert_eq!(after("gather for forward 1.1"), ["backward 0.0"]);
    // Two sums forward and two backward a layer, and one for the embedding, which waits for its parameters.
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "tensor").0, 2 * (4 * 32 + 1));
    assert_eq!(after("embed 1"), ["gather for embedding 1"]);
}

#[test]
fn sequence_parallelism_gathers_inputs_again_and_scatters_the_embedding() {
    let of = |model: &str| made(&Settings { tensor: 2, sequence_parallel: true, ..Settings::new(model) }).1;
    let summary = of("llama3-8b");
    assert_eq!(row(&summary, CollectiveKind::AllGather, "tensor").0, 32 * (2 + 4));
    assert_eq!(row(&summary, CollectiveKind::ReduceScatter, "tensor").0, 32 * (2 + 2) + 1);
    assert!(summary.collectives.iter().all(|row| row.kind != CollectiveKind::AllReduce), "{:?}", summary.collectives);
    // Learned positions are added to all tokens of a sum.
    let summary = of("gpt3-175b");
    assert_eq!(row(&summary, CollectiveKind::ReduceScatter, "tensor").0, 96 * (2 + 2));
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "tensor").0, 1);
}

#[test]
fn both_copies_of_a_tied_matrix_are_reduced() {
    let settings = |pipeline| Settings { data: 2, pipeline, ..Settings::new("gpt3-175b") };
    let whole = workload_bytes(&made(&settings(1)).0, CollectiveKind::ReduceScatter);
    let (workload, _) = made(&settings(2));
    assert_eq!(workload_bytes(&workload, CollectiveKind::ReduceScatter), whole + 50_257 * 12_288 * 4);
    // Parameters are gathered as they were scattered, as bf16.
    assert_eq!(workload_bytes(&workload, CollectiveKind::AllGather) * 2, whole + 50_257 * 12_288 * 4);
}

#[test]
fn experts_exchange_tokens_and_have_gradients_of_their_own() {
    let settings = Settings { data: 8, expert: 8, micro_batches: 2, sharding: Some(Sharding::Ddp), ..Settings::new("mixtral-8x7b") };
    let (_, summary) = made(&settings);
    // There and back, forward and backward, in 32 layers, twice: two experts a token.
    assert_eq!(row(&summary, CollectiveKind::AllToAll, "expert"), (4 * 32 * 2, 4 * 32 * 2, 4 * 32 * 2 * 4096 * 4096 * 2 * 2));
    // Experts are whole at each rank: only the rest is summed.
    let experts = 32 * 8 * 3 * 4_096 * 14_336u64;
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "data").2, (46_702_792_704 - experts) * 4);
    let settings = Settings { data: 16, expert: 8, tensor: 2, pipeline: 2, sequence_parallel: true, ..Settings::new("deepseek-v3") };
    let (_, summary) = made(&Settings { micro_batches: 4, ..settings });
    assert_eq!(
        row(&summary, CollectiveKind::AllToAll, "expert").0,
        4 * 4 * 31,
        "30 or 31 layers a stage, of which the first has 3 dense ones"
    );
    assert!(row(&summary, CollectiveKind::ReduceScatter, "expert data").0 > 0);
    assert!(row(&summary, CollectiveKind::AllGather, "tensor").0 > 0);
}

#[test]
fn every_model_is_made() {
    for (model, pipeline) in
        [("llama3-405b", 16), ("gpt3-175b", 8), ("bert", 1), ("bert-large", 2), ("deepseek-v3", 4), ("mixtral-8x7b", 2)]
    {
        let (_, summary) = made(&Settings { data: 2, tensor: 4, pipeline, micro_batches: pipeline, ..Settings::new(model) });
        assert_eq!(summary.ranks, 8 * pipeline, "{model}");
    }
    let (_, summary) = made(&Settings { tensor: 8, pipeline: 8, micro_batches: 8, ..Settings::new("gpt3-175b") });
    assert_eq!(row(&summary, CollectiveKind::AllReduce, "embedding"), (1, 8, 50_257 * 12_288 / 8 * 4));
}

/// Llama 3 8B: operations of a forward pass through all layers for a token of a sequence of 8192, and those of them that are attention's products.
/// A layer has 41,947,136 parameters of attention and 176,164,864 of its perceptron; the products are with half of 8192 tokens, of 32 heads, for
/// keys and values of 128 each.
const LAYERS: f64 = 32.0 * (2.0 * (41_947_136.0 + 176_164_864.0) + PRODUCTS);
const PRODUCTS: f64 = 2.0 * 4_096.0 * 32.0 * 256.0;
/// Those of the output.
const OUTPUT: f64 = 2.0 * 128_256.0 * 4_096.0;

#[test]
fn what_is_computed_again_is_a_forward_pass_or_the_products_of_attention() {
    let of = |recompute, tensor| made(&Settings { recompute, tensor, ..Settings::new("llama3-8b") }).1;
    let seconds = |operations: f64| operations * 8_192.0 / (0.4 * 989e12);
    for (recompute, operations) in [
        (Recompute::None, 3.0 * (LAYERS + OUTPUT)),
        (Recompute::Selective, 3.0 * (LAYERS + OUTPUT) + 32.0 * PRODUCTS),
        (Recompute::Full, 4.0 * LAYERS + 3.0 * OUTPUT),
    ] {
        let found = of(recompute, 1).compute.0.as_s_f64();
        assert!((found / seconds(operations) - 1.0).abs() < 1e-6, "{recompute:?}: {found} s, expected {}", seconds(operations));
    }
    // Two sums of a layer forward, two backward, and forward again; one of the embedding.
    for (recompute, sums) in [(Recompute::None, 4), (Recompute::Selective, 4), (Recompute::Full, 6)] {
        assert_eq!(row(&of(recompute, 2), CollectiveKind::AllReduce, "tensor").0, sums * 32 + 1, "{recompute:?}");
    }
    // Experts get their tokens again, too; parameters that are gathered are gathered as before.
    let experts = Settings { data: 8, expert: 8, recompute: Recompute::Full, ..Settings::new("mixtral-8x7b") };
    assert_eq!(row(&made(&experts).1, CollectiveKind::AllToAll, "expert").0, 6 * 32);
    let sharded = Settings { data: 8, recompute: Recompute::Full, sharding: Some(Sharding::Fsdp), ..Settings::new("llama3-8b") };
    assert_eq!(row(&made(&sharded).1, CollectiveKind::AllGather, "data").0, 32 * 2 + 1);
}

#[test]
fn shares_of_activations_are_sent_and_gathered() {
    let settings = |scatter_gather| Settings { tensor: 8, pipeline: 4, micro_batches: 6, scatter_gather, ..Settings::new("llama3-70b") };
    let (whole, shares) = (made(&settings(false)).1, made(&settings(true)).1);
    // 8192 tokens of 8192 elements of two bytes; a rank of a stage in the middle sends forward and back, six times each.
    let all = 8_192 * 8_192 * 2;
    assert_eq!(whole.sends.map(|sends| (sends.of_rank, sends.bytes)), Some((12, (all, all))));
    assert_eq!(shares.sends.map(|sends| (sends.of_rank, sends.bytes)), Some((12, (all / 8, all / 8))));
    // What comes is gathered among the eight: in 3 of the 4 stages forward, and in 3 backward, six times each.
    assert_eq!(row(&shares, CollectiveKind::AllGather, "tensor"), (12, 2 * 3 * 6, 12 * all));
    let sums = |summary: &Summary| row(summary, CollectiveKind::AllReduce, "tensor");
    assert_eq!(sums(&whole), sums(&shares));
}

/// Four stages with two parts each and eight micro-batches, of a model whose output takes no time.
#[test]
fn an_interleaved_pipeline_waits_half_as_long_and_sends_twice_as_often() {
    let settings = |virtual_stages| Settings {
        pipeline: 4,
        micro_batches: 8,
        data: 2,
        virtual_stages,
        changes: vec!["vocabulary=1".into()],
        ..Settings::new("llama3-8b")
    };
    let ((plain, before), (workload, summary)) = (made(&settings(1)), made(&settings(2)));
    // A pass through a stage's 8 layers, forward and backward, is a unit: 8 units are computed, and 3 or 3 / 2 are waited for.
    let unit = before.compute.0.as_s_f64() / 8.0;
    assert!((unit / (3.0 * LAYERS / 4.0 * 8_192.0 / (0.4 * 989e12)) - 1.0).abs() < 1e-3, "{unit} s");
    for (summary, units) in [(&before, 8.0 + 3.0), (&summary, 8.0 + 1.5)] {
        let span = summary.span.expect("run").as_s_f64();
        assert!((span / (units * unit) - 1.0).abs() < 1e-3, "{span} s, expected {units} times {unit} s");
    }
    // Of 4 stages with one part, a micro-batch goes over 3 ends forward and 3 back; of 8 parts over 7. There are two replicas.
    let sends = |workload: &Workload, rank: u32| {
        let program = workload.programs.iter().find(|program| program.ranks.contains(&rank)).expect("a program");
        program.nodes.iter().filter(|node| matches!(node.action, fanin_workload::Action::Send(_))).count()
    };
    let of_stages = |workload: &Workload| [0, 2, 4, 6].map(|rank| sends(workload, rank));
    assert_eq!(of_stages(&plain), [8, 16, 16, 8], "3 ends x 8 micro-batches x 2 directions");
    assert_eq!(of_stages(&workload), [24, 32, 32, 24], "7 ends x 8 micro-batches x 2 directions");
    assert_eq!(summary.sends.map(|sends| sends.bytes), before.sends.map(|sends| sends.bytes));
    // Gradients are those of all parameters, once.
    let reduced = |workload: &Workload| workload_bytes(workload, CollectiveKind::ReduceScatter);
    assert_eq!(reduced(&workload), reduced(&plain));
    let gathered = |workload: &Workload| workload_bytes(workload, CollectiveKind::AllGather);
    assert_eq!(gathered(&workload), gathered(&plain));
    // Two stages send each other forward and backward ones; tied matrices, experts and layers that do not divide go with it.
    for (model, pipeline, virtual_stages) in [("gpt3-175b", 2, 3), ("deepseek-v3", 4, 3), ("llama3-405b", 2, 5)] {
        let settings = Settings { data: 2, tensor: 2, pipeline, virtual_stages, micro_batches: 2 * pipeline, ..Settings::new(model) };
        let settings = Settings { scatter_gather: true, recompute: Recompute::Full, ..settings };
        let (workload, _) = made(&settings);
        let plain = made(&Settings { virtual_stages: 1, ..settings }).0;
        // Buckets of parts are other ones; what is in them is not.
        assert_eq!(reduced(&workload), reduced(&plain), "{model}");
    }
}

#[test]
fn one_rank_computes_only() {
    let (_, summary) = made(&Settings::new("llama3-8b"));
    assert!(summary.collectives.is_empty() && summary.sends.is_none());
}

#[test]
fn what_does_not_fit_is_refused_with_the_option() {
    let refused = |settings: Settings| generate(&settings).map(drop).unwrap_err();
    let model = || Settings::new("llama3-8b");
    let found = [
        (Settings { tensor: 5, ..model() }, "--tp 5: expected a divisor of 32 heads"),
        (Settings { pipeline: 33, ..model() }, "--pp 33: expected at most 32 layers"),
        (Settings { expert: 2, data: 2, ..model() }, "--ep 2: expected a divisor of 0 experts"),
        (Settings { expert: 3, data: 2, ..model() }, "--ep 3: expected a divisor of --dp 2"),
        (Settings { data: 0, ..model() }, "--dp 0: expected at least 1"),
        (Settings { data: 1 << 21, ..model() }, "2097152 ranks, the product of --dp, --tp and --pp: expected at most 1048576"),
        (Settings { gpu: "h1".into(), ..model() }, "--gpu h1: expected one of a100, b200, h100, h200, mi300x, v100"),
        (Settings { utilisation: 1.5, ..model() }, "--utilisation 1.5: expected more than 0 and at most 1"),
        (Settings { peak: Some(0.0), ..model() }, "--peak 0: expected at least 1e9 operations a second"),
        (Settings { pipeline: 2, sharding: Some(Sharding::Fsdp), ..model() }, "--sharding fsdp: expected neither --pp nor --ep"),
        (Settings { tensor: 2, ..Settings::new("vgg16") }, "vgg16: expected neither --tp, --pp, --ep nor --set: its replicas are whole"),
        (Settings { changes: vec!["layers=0".into()], ..model() }, "layers = 0: expected 1 to 16777216"),
        (Settings { virtual_stages: 0, ..model() }, "--virtual-stages 0: expected at least 1"),
        (Settings { virtual_stages: 2, ..model() }, "--virtual-stages 2: expected --pp of 2 or more"),
        (
            Settings { virtual_stages: 2, pipeline: 4, micro_batches: 6, ..model() },
            "--micro-batches 6: expected a multiple of --pp 4 with --virtual-stages",
        ),
        (
            Settings { virtual_stages: 9, pipeline: 4, micro_batches: 8, ..model() },
            "--virtual-stages 9: expected --pp 4 times as many to be at most 32 layers",
        ),
        (Settings { scatter_gather: true, tensor: 8, ..model() }, "--scatter-gather: expected --tp and --pp of 2 or more"),
        (
            Settings { scatter_gather: true, sequence_parallel: true, tensor: 8, pipeline: 2, ..model() },
            "--scatter-gather: expected no --sequence-parallel, by which each rank has its share only",
        ),
        (
            Settings { recompute: Recompute::Full, ..Settings::new("resnet50") },
            "resnet50: expected no --recompute: it is for layers of transformers",
        ),
    ];
    for (settings, expected) in found {
        assert_eq!(refused(settings), expected);
    }
    assert!(refused(Settings::new("llama")).starts_with("llama: expected one of bert, bert-large, deepseek-v3, "));
}
