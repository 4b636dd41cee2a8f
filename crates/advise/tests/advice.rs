//! Advice on networks whose answer is known by counting.

use std::path::{Path, PathBuf};

use fanin_advise::check::CLOSE;
use fanin_advise::prices::prices;
use fanin_advise::setting::{New, Setting, gbps_of, simulated};
use fanin_advise::{Advice, Question, advise, written};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("fanin-advice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn setting(&self, network: &str, jobs: &str) -> Setting {
        Setting::load(&self.write("network.toml", network), &self.write("jobs.toml", jobs)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Racks of these sizes below one core.
fn racks(sizes: &[u32], uplink: &str, of_tors: &str) -> String {
    let hosts: u32 = sizes.iter().sum();
    let mut text = format!("hosts = [\"h[0-{}]\"]\n[defaults]\nrate = \"100Gb/s\"\nlatency = \"500ns\"\n", hosts - 1);
    let mut first = 0;
    for (rack, size) in sizes.iter().enumerate() {
        text += &format!(
            "[[switches]]\nname = \"tor{rack}\"\n{of_tors}\n[[links]]\nfrom = \"tor{rack}\"\nto = \"h[{first}-{}]\"\n",
            first + size - 1
        );
        text += &format!("[[links]]\nfrom = \"core\"\nto = \"tor{rack}\"\nrate = \"{uplink}\"\n");
        first += size;
    }
    text + "[[switches]]\nname = \"core\"\n"
}

fn job(workers: u32) -> String {
    format!("[[jobs]]\nworkers = {workers}\nplacement = \"packed\"\nmessage = \"4MB\"\n")
}

/// A prediction, and the simulation of the same.
fn both(setting: &Setting, system: &str, able: &[bool]) -> (f64, f64) {
    let prepared = setting.prepare(system, able, New::default(), 0).unwrap();
    let predicted = setting.predict(&prepared).unwrap().gbps();
    (predicted, gbps_of(&simulated(&prepared).unwrap()).unwrap())
}

fn near((predicted, simulated): (f64, f64), expected: f64, what: &str) {
    assert!((predicted / simulated - 1.0).abs() < 0.1, "{what}: predicted {predicted}, simulated {simulated}");
    assert!((simulated / expected - 1.0).abs() < 0.1, "{what}: simulated {simulated}, expected {expected}");
}

#[test]
fn links_between_switches_bind_rings_and_switches_that_sum_do_not_mend_that_for_rina() {
    let folder = Folder::new("uplinks");
    let setting = folder.setting(&racks(&[16, 8, 4, 2, 1], "10Gb/s", ""), &job(31));
    let none = vec![false; setting.switches.len()];
    near(both(&setting, "ring", &none), 4.8, "a ring crosses each uplink once in each direction, 2 (N-1)/N times the vector");
    let tors: Vec<bool> = setting.switches.iter().map(|switch| switch.name.starts_with("tor")).collect();
    let prepared = setting.prepare("rina", &tors, New::default(), 0).unwrap();
    let rina = setting.predict(&prepared).unwrap();
    assert!(rina.gbps() < 5.5 && rina.unknown.is_some(), "not 49: {rina:?}");
    assert!(rina.jobs[0].bound.contains("10 Gb/s"), "{rina:?}");
    near(both(&setting, "tree", &vec![true; setting.switches.len()]), 9.4, "a tree crosses each once");
}

#[test]
fn jobs_on_the_same_hosts_share_their_links() {
    let folder = Folder::new("shared");
    let network = "[network]\nshape = \"fat-tree-3\"\nports = 4\nrate = \"100Gb/s\"\nlatency = \"500ns\"\n";
    let setting = folder.setting(network, &job(16).replace("workers", "jobs_per_host = 4\nworkers").repeat(4));
    near(both(&setting, "ring", &setting.today()), 49.4, "four rings have 100 Gb/s together");
}

#[test]
fn the_agent_of_a_lone_rack_carries_the_vector_twice() {
    let folder = Folder::new("agent");
    let network = racks(&[8], "100Gb/s", "");
    let setting = folder.setting(&network, &job(8));
    let prepared = setting.prepare("rina", &[true, true], New::default(), 0).unwrap();
    let predicted = setting.predict(&prepared).unwrap().gbps();
    assert!((44.0..49.0).contains(&predicted), "not 100: {predicted}");
}

#[test]
fn what_switches_add_and_hold_binds_and_is_named() {
    let folder = Folder::new("limits");
    let slow = racks(&[4, 4], "100Gb/s", "aggregates = true\naggregation_rate = \"20Gb/s\"")
        .replace("name = \"core\"", "name = \"core\"\naggregates = true");
    let setting = folder.setting(&slow, &job(8));
    near(both(&setting, "tree", &setting.today()), 20.0, "as fast as its switches add");
    let prepared = setting.prepare("tree", &setting.today(), New::default(), 0).unwrap();
    let bound = &setting.predict(&prepared).unwrap().jobs[0].bound;
    assert!(bound.starts_with("how fast tor0 adds") || bound.starts_with("how fast tor1 adds"), "{bound}");
    let small = slow.replace("aggregation_rate = \"20Gb/s\"", "memory = \"16KiB\"");
    let setting = folder.setting(&small, &job(8));
    let prepared = setting.prepare("tree", &setting.today(), New::default(), 0).unwrap();
    assert_eq!(prepared.jobs[0].settings.common.window.0, 8, "two windows of 1 KiB fit 16 KiB");
    near(both(&setting, "tree", &setting.today()), 27.9, "eight packets a round trip");
}

fn advice(setting: &Setting, change: impl Fn(&mut Question)) -> Advice {
    let mut question = Question::of(setting, 8.0);
    change(&mut question);
    advise(setting, &question).unwrap()
}

#[test]
fn nothing_is_bought_where_nothing_helps() {
    let folder = Folder::new("nothing");
    // New switches add at a fifth of what hosts send: no better than a ring.
    let setting = folder.setting(&racks(&[4, 4], "100Gb/s", ""), &job(8));
    let found = advice(&setting, |question| question.new.bits_per_second = Some(20_000_000_000));
    assert!(found.buys_nothing && found.switches.is_empty() && found.price == 0.0, "{found:?}");
    assert!(found.not_gained.starts_with("no purchase within 8 gains 5 % or more"), "{}", found.not_gained);
    let none = advice(&setting, |question| question.budget = 0.0);
    assert!(none.buys_nothing);
}

#[test]
fn what_is_bought_is_within_the_budget_is_held_by_simulation_and_says_what_fails() {
    let folder = Folder::new("bought");
    let setting = folder.setting(&racks(&[4, 4], "25Gb/s", ""), &job(8));
    let found = advice(&setting, |_| {});
    assert!(!found.buys_nothing && found.gain.0 > 0.5, "{found:?}");
    assert_eq!(found.switches.len(), found.failures.len());
    assert!(found.failures.iter().all(|failure| failure.value.score() > 0.0));
    let question = Question::of(&setting, 8.0);
    let out = folder.0.join("out");
    written::all(&out, &setting, &question, &found, "a title").unwrap();
    let last = found.offers.iter().find(|offer| offer.system == found.system).unwrap().best;
    // The step's network reads as it is, and what is simulated on it is what was said.
    let again = Setting::load(&out.join(format!("step-{last}.toml")), &folder.0.join("jobs.toml")).unwrap();
    assert_eq!(again.today().iter().filter(|able| **able).count(), found.switches.len());
    let said = found.offers.iter().find(|offer| offer.system == found.system).unwrap().steps[last].value.score();
    near(both(&again, found.system, &again.today()), said, "the last step");
    let plan = fanin_plan::Plan::load(&out.join(format!("plan-{last}.toml")), &[], None).unwrap();
    assert!(plan.prepare(&plan.points[0], 0).is_ok());
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Not gained") && !page.contains("<script"));
}

#[test]
fn what_is_near_the_first_choice_is_simulated_unless_rules_are_asked_for() {
    let folder = Folder::new("settled");
    let setting = folder.setting(&racks(&[4, 4], "25Gb/s", ""), &job(8));
    let known = |question: &mut Question| question.systems = vec!["ring", "tree", "switchml"];
    let found = advice(&setting, known);
    let most = found.offers[0].steps[found.offers[0].best].value.score();
    for offer in &found.offers {
        let value = &offer.steps[offer.best].value;
        assert_eq!(value.simulated.is_some(), value.score() >= most * CLOSE || offer.steps[offer.best].price == 0.0, "{offer:?}");
    }
    assert!(found.today.steps[0].value.simulated.is_some() && found.failures.iter().all(|failure| failure.value.simulated.is_some()));
    let by_rules = advice(&setting, |question| {
        known(question);
        question.simulate = false;
    });
    assert!(by_rules.offers.iter().flat_map(|offer| &offer.steps).all(|step| step.value.simulated.is_none()), "{by_rules:?}");
}

#[test]
fn any_order_may_be_asked_for_and_prices_are_money() {
    let folder = Folder::new("order");
    let setting = folder.setting(&racks(&[4, 4], "25Gb/s", ""), &job(8));
    let order = vec!["core".to_string(), "tor1".into(), "tor0".into()];
    let found = advice(&setting, |question| (question.order, question.systems) = (Some(order.clone()), vec!["ring", "tree"]));
    let tree = found.offers.iter().find(|offer| offer.system == "tree").unwrap();
    assert_eq!(tree.steps.iter().flat_map(|step| step.switches.clone()).collect::<Vec<_>>(), order);
    let file = folder.write("prices.toml", "core = 9000\n\"tor*\" = 2500\n");
    let money = prices(&file, &setting).unwrap();
    assert_eq!(money.iter().sum::<f64>(), 14_000.0);
    let cheap = advice(&setting, |question| (question.prices, question.budget) = (money.clone(), 6_000.0));
    assert!(cheap.price <= 6_000.0 && !cheap.switches.contains(&"core".to_string()), "{:?}", cheap.switches);
    let error = |text: &str| prices(&folder.write("prices.toml", text), &setting).unwrap_err().to_string();
    assert!(error("tor0 = 1\n").ends_with("core: expected a price, or one as default") || error("tor0 = 1\n").contains("expected a price"));
    assert!(
        error("default = 1\nspine = 2\n").contains("spine = 2: expected the name of a switch"),
        "{}",
        error("default = 1\nspine = 2\n")
    );
    assert!(advise(&setting, &Question { order: Some(vec!["nobody".into()]), ..Question::of(&setting, 8.0) }).is_err());
}

#[test]
fn an_iteration_gains_less_than_its_allreduce() {
    let folder = Folder::new("iteration");
    let jobs = "[[jobs]]\nworkers = 8\nplacement = \"packed\"\nmessage = \"4MB\"\niterations = 2\ncompute = \"1ms\"\n";
    let setting = folder.setting(&racks(&[4, 4], "25Gb/s", ""), jobs);
    let found = advice(&setting, |question| question.systems = vec!["ring", "tree"]);
    let base = &found.today.steps[0].value;
    let (iteration, only) = (found.gain.0, found.offers[0].steps[found.offers[0].best].value.gbps / base.gbps - 1.0);
    assert!(base.iteration_us.unwrap() > 2_000.0 && iteration > 0.0 && iteration < only, "{iteration} of {only}");
}

#[test]
fn the_shipped_example_reads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/networks");
    let setting = Setting::load(&root.join("racks.toml"), &root.join("jobs.toml")).unwrap();
    assert_eq!(setting.today().iter().filter(|able| **able).count(), 2);
}
