//! Times of a trace in place of computed ones: the numbers of each case are written out.

use fanin_workload::durations::{self, Durations};
use fanin_workload::import::Input;
use fanin_workload::{Action, Workload, WorkloadError};

/// Three computations and two sums.
const MODEL: &str = r#"
workload = 1
ranks = 2
groups = [{ name = "data", size = 2 }]
programs = [{ name = "all", ranks = "0-1", nodes = [
  { id = "forward layer 0", compute = "10us" },
  { id = "backward b 0", compute = "20us", after = ["forward layer 0"] },
  { id = "gradients 0", collective = "all-reduce", group = "data", bytes = "1000B", element = "f32", stream = "data", after = ["backward b 0"] },
  { id = "backward a 0", compute = "30us", after = ["backward b 0"] },
  { id = "gradients 1", collective = "all-reduce", group = "data", bytes = "2000B", element = "f32", stream = "data", after = ["backward a 0"] },
] }]
"#;

/// A workload with these nodes.
fn trace(nodes: &str) -> String {
    format!(
        "workload = 1\nranks = 2\niterations = 2\ngroups = [{{ name = \"pg\", size = 2 }}]\nprograms = [{{ name = \"all\", ranks = \"0-1\", nodes = [\n{nodes}] }}]\n"
    )
}

fn computing(number: u32, time: &str) -> String {
    format!("{{ id = \"compute {number}\", compute = \"{time}\" }},\n")
}

fn sum(id: &str, bytes: u32, after: u32) -> String {
    format!(
        "{{ id = \"{id}\", collective = \"all-reduce\", group = \"pg\", bytes = \"{bytes}B\", element = \"f32\", after = [\"compute {after}\"] }},\n"
    )
}

fn apply(model: &str, trace: &str) -> (Workload, Result<Durations, WorkloadError>) {
    let mut model = Workload::from_toml("model.toml", model).unwrap();
    let input = Input::new("trace", trace.as_bytes().to_vec()).unwrap();
    let found = durations::apply(&mut model, &[input]);
    (model, found)
}

fn nanoseconds(workload: &Workload) -> Vec<u64> {
    let blocks = workload.blocks.iter().flat_map(|block| &block.nodes);
    let nodes = blocks.chain(workload.programs.iter().flat_map(|program| &program.nodes));
    nodes.filter_map(|node| if let Action::Compute(time) = node.action { Some(time.as_ps() / 1_000) } else { None }).collect()
}

/// Two iterations: 12 us, a sum, 6 us, a sum, 4 us; 14 us, a sum, 8 us, a sum, 2 us.
fn two_iterations(last: &str) -> String {
    let all = [
        computing(0, "12us"),
        sum("a", 1000, 0),
        computing(1, "6us"),
        sum("b", 2000, 1),
        computing(2, "4us"),
        "{ id = \"buffers\", collective = \"broadcast\", group = \"pg\", bytes = \"8B\", element = \"i64\" },\n".into(),
        computing(3, "14us"),
        sum("c", 1000, 3),
        computing(4, "8us"),
        sum("d", 2000, 4),
        computing(5, "2us"),
        last.into(),
    ];
    trace(&all.concat())
}

#[test]
fn computing_between_the_same_collectives_takes_the_time_of_the_trace() {
    let (model, found) = apply(MODEL, &two_iterations(""));
    let found = found.unwrap();
    assert_eq!((found.by_name, found.by_collectives, found.computed, found.iterations), (0, 3, 0, 2));
    // Between the sums (6 + 8) / 2 = 7 us. All are 46 us, so that 32 us are left for what is before the first sum of both iterations: 16 us,
    // a third of them forward.
    assert_eq!(nanoseconds(&model), [5_333, 10_666, 7_000]);
    let left: Vec<_> = found.report.left_out.iter().map(|one| (one.what.as_str(), one.count, one.first.as_str())).collect();
    assert_eq!(left, [("collectives of the trace that the model does not have", 1, "broadcast of 8 bytes of i64")]);
    assert!(model.source.ends_with("; 3 of 3 computations as measured in trace"), "{}", model.source);
    assert_eq!(Workload::from_toml("again", &model.to_toml()).unwrap().to_toml(), model.to_toml());
}

#[test]
fn an_iteration_that_is_cut_off_counts_as_far_as_it_goes() {
    let (model, found) = apply(MODEL, &two_iterations(&(computing(6, "20us") + &sum("e", 1000, 6) + &computing(7, "99us"))));
    let found = found.unwrap();
    // From the first sum of the first iteration to that of the third there are 6 + 4 + 14 + 8 + 2 + 20 us, of which 14 us are between sums.
    assert_eq!((found.iterations, nanoseconds(&model)), (2, vec![6_666, 13_333, 7_000]));
    assert!(found.report.left_out.iter().any(|one| one.what.contains("last iteration") && one.count == 1), "{:?}", found.report);
}

#[test]
fn names_come_first() {
    let named = trace(
        "{ id = \"backward a\", compute = \"3us\" }, { id = \"backward a 1\", compute = \"90us\" }, { id = \"forward layer\", compute = \"5us\" },\n\
         { id = \"update\", compute = \"1us\", after = [\"forward layer\"] },\n",
    );
    let (model, found) = apply(MODEL, &named);
    let found = found.unwrap();
    assert_eq!((found.by_name, found.by_collectives, found.computed), (2, 0, 1));
    assert_eq!(nanoseconds(&model), [5_000, 20_000, 3_000]);
    let left: Vec<_> = found.report.left_out.iter().map(|one| (one.what.as_str(), one.count)).collect();
    assert_eq!(
        left,
        [
            ("collectives of the model that the trace does not have", 2),
            ("computations of the model that nothing in the trace is found for, which keep their computed time", 1),
            ("named times of the trace that are no computation of the model", 2),
        ]
    );
}

#[test]
fn blocks_get_the_mean_of_what_is_done_several_times() {
    let model = r#"
workload = 1
ranks = 2
groups = [{ name = "tensor", size = 2 }]
blocks = [{ name = "layer", nodes = [
  { id = "multiply", compute = "10us" },
  { id = "sum", collective = "all-reduce", group = "tensor", bytes = "1000B", element = "f32", after = ["multiply"] },
] }]
programs = [{ name = "all", ranks = "0-1", nodes = [
  { id = "layers", call = "layer", times = 3 },
  { id = "output", compute = "1us", after = ["layers"] },
] }]
"#;
    let measured = [computing(0, "4us"), sum("a", 1000, 0), computing(1, "6us"), sum("b", 1000, 1), computing(2, "8us"), sum("c", 1000, 2)];
    let (made, found) = apply(model, &trace(&measured.concat()).replace("iterations = 2\n", ""));
    // 4 us are before the first sum, of which 11 computed microseconds are, one of them behind the last sum.
    assert_eq!(nanoseconds(&made), [(3_636 + 6_000 + 8_000) / 3, 363]);
    assert_eq!(found.unwrap().iterations, 1);
    // By the name of the block and the node's.
    let (made, _) = apply(model, &trace("{ id = \"layer multiply\", compute = \"2us\" },\n"));
    assert_eq!(nanoseconds(&made), [2_000, 1_000]);
}

#[test]
fn spans_that_the_training_program_names_are_names() {
    let event = |cat: &str, name: &str, ts: u32, dur: u32, args: &str| {
        format!("{{\"ph\": \"X\", \"cat\": \"{cat}\", \"name\": \"{name}\", \"ts\": {ts}, \"dur\": {dur}, \"args\": {{{args}}}}}")
    };
    let said = "\"stream\": 20, \"Collective name\": \"allreduce\", \"In msg nelems\": 250, \"Out msg nelems\": 250, \"Group size\": 2, \"dtype\": \
                \"Float\", \"Process Group Name\": \"0\", \"Process Group Ranks\": \"[0, 1]\"";
    let events = [
        event("kernel", "gemm", 0, 40, "\"stream\": 7"),
        event("gpu_user_annotation", "forward layer", 0, 30, ""),
        event("gpu_user_annotation", "backward b", 30, 10, ""),
        event("gpu_user_annotation", "ProfilerStep#1", 0, 90, ""),
        event("gpu_user_annotation", "optimizer", 80, 5, ""),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 5, said),
    ];
    let text = format!("{{\"distributedInfo\": {{\"rank\": 0, \"world_size\": 2}}, \"traceEvents\": [{}]}}", events.join(","));
    let (model, found) = apply(MODEL, &text);
    let found = found.unwrap();
    // 40 us of the GPU until the only sum that both have: what has a name has its own time.
    assert_eq!((found.by_name, found.by_collectives, found.computed), (2, 1, 0));
    assert_eq!(nanoseconds(&model), [30_000, 10_000, 20_000]);
    let unused = found.report.left_out.iter().find(|one| one.what.starts_with("named")).unwrap();
    assert_eq!((unused.count, unused.first.as_str()), (1, "optimizer"));
}

#[test]
fn a_trace_of_something_else_is_refused() {
    let said = |text: &str| apply(MODEL, text).1.unwrap_err().to_string();
    assert_eq!(
        said(&trace(&(computing(0, "1us") + &sum("a", 4000, 0)))),
        "trace: nothing is found in the model: expected computations of the same name, or the model's collectives; the model's first one is all-reduce of \
         1000 bytes of f32"
    );
    let wrong_order = [computing(0, "1us"), sum("b", 2000, 0), sum("a", 1000, 0)].concat();
    assert_eq!(
        said(&trace(&wrong_order)),
        "trace: nothing is found in the model: expected computations of the same name, or the model's collectives; no iteration of the trace has them all \
         in their order, from all-reduce of 1000 bytes of f32 on: all-reduce of 2000 bytes of f32 is missing"
    );
    assert!(said("no trace").starts_with("trace"), "{}", said("no trace"));
    let mut model = Workload::from_toml("model.toml", MODEL).unwrap();
    assert!(durations::apply(&mut model, &[]).is_err());
}
