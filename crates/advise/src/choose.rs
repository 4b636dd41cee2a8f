//! What to buy: which systems, which switches in which order, what each step gains, and what is left where one of them fails.

use std::collections::BTreeMap;

use fanin_core::NodeId;
use fanin_plan::{PlanError, Prepared};
use serde::Serialize;

use crate::check::CLOSE;
use crate::setting::{BY_HOSTS, New, PARTIAL, SYSTEMS, Setting};
use crate::value::{Value, value};

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// Systems that are compared.
    pub systems: Vec<&'static str>,
    /// What may be spent.
    pub budget: f64,
    /// Price of each switch of the network.
    pub prices: Vec<f64>,
    /// What a new switch can do.
    pub new: New,
    /// In this order, in place of the best one found.
    pub order: Option<Vec<String>>,
    /// All that comes near the first choice is simulated before it is chosen, and not only what the rules do not know.
    pub simulate: bool,
    /// Draws of placement and paths over which values are taken.
    pub draws: u32,
}

impl Question {
    /// Everything is compared, a switch costs 1.
    pub fn of(setting: &Setting, budget: f64) -> Question {
        Question {
            systems: SYSTEMS.to_vec(),
            budget,
            prices: vec![1.0; setting.switches.len()],
            new: New::default(),
            order: None,
            simulate: true,
            draws: 3,
        }
    }
}

/// A step of a plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// What is replaced in this step; nothing in the first one.
    pub switches: Vec<String>,
    /// What all steps so far cost.
    pub price: f64,
    /// What is reduced then.
    pub value: Value,
}

/// What a system makes of the budget.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Offer {
    /// The system.
    pub system: &'static str,
    /// Its steps; the first is the network as it is, where the system can do the jobs there.
    pub steps: Vec<Step>,
    /// The step that is worth most.
    pub best: usize,
}

/// What is left when a new switch does not sum any more.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Failure {
    /// The switch.
    pub switch: String,
    /// The system that does the jobs then.
    pub system: &'static str,
    /// What is reduced then.
    pub value: Value,
}

/// Advice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// What is best without a purchase.
    pub today: Offer,
    /// All offers, the best first.
    pub offers: Vec<Offer>,
    /// Nothing is worth its price.
    pub buys_nothing: bool,
    /// The system to run, after the purchase or without one.
    pub system: &'static str,
    /// The switches to replace, in this order.
    pub switches: Vec<String>,
    /// What they cost.
    pub price: f64,
    /// How much more is reduced than today, as a share: from the least to the most over draws.
    pub gain: (f64, f64, f64),
    /// What is not gained, in words.
    pub not_gained: String,
    /// What is left when one new switch does not sum any more.
    pub failures: Vec<Failure>,
    /// The windows of jobs in packets, and timeouts where the system has some.
    pub windows: Vec<u32>,
    /// A switch's timeout in us, where the system has one.
    pub timeout_us: Option<f64>,
    /// The placement that gains most, and how much; nothing where jobs are well placed.
    pub placement: Option<(String, f64)>,
}

/// What has to be gained to be worth a purchase: less is within what predictions miss.
const WORTH: f64 = 0.05;
/// A dearer plan has to be so much better than a cheaper one.
const DEARER: f64 = 0.02;
/// Sets of switches that are tried at most, before one after the other is taken.
const SETS_MAX: usize = 400;

/// Finds what to buy.
///
/// # Errors
/// [`PlanError`] where no system can do these jobs on this network, or a name of the order is no switch's.
pub fn advise(setting: &Setting, question: &Question) -> Result<Advice, PlanError> {
    let able = setting.today();
    let mut asked = Asker { setting, question, known: BTreeMap::new(), confirmed: BTreeMap::new() };
    let mut offers = Vec::new();
    for &system in &question.systems {
        offers.extend(asked.offer(system)?);
    }
    let today = asked.today(&mut offers)?;
    let worth = |offer: &Offer| offer.steps[offer.best].value.score();
    offers.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    asked.confirm(&mut offers);
    let base = today.steps[0].value.clone();
    // Of those that are about as good, the cheapest.
    let most = offers.iter().map(worth).fold(0.0, f64::max);
    let near = offers.iter().filter(|offer| worth(offer) >= most * (1.0 - DEARER));
    let first = near.min_by(|a, b| a.steps[a.best].price.total_cmp(&b.steps[b.best].price).then(worth(b).total_cmp(&worth(a))));
    let first = first.unwrap_or(&today).clone();
    let chosen = &first.steps[first.best];
    let buys_nothing = chosen.price <= 0.0 || chosen.value.score() < base.score() * (1.0 + WORTH);
    let kept = if buys_nothing { &today } else { &first };
    let (system, steps) = (kept.system, &kept.steps[..=kept.best]);
    let switches: Vec<String> = steps.iter().flat_map(|step| step.switches.iter().cloned()).collect();
    let last = &steps[steps.len() - 1];
    let with = asked.with(&able, &switches);
    let prepared = setting.prepare(system, &with, question.new, 0)?;
    Ok(Advice {
        buys_nothing,
        system,
        price: last.price,
        gain: last.value.gain_over(&base),
        not_gained: not_gained(&first, &base, buys_nothing, question.budget),
        failures: if buys_nothing { Vec::new() } else { asked.failures(system, &with, &switches) },
        windows: prepared.jobs.iter().map(|job| job.settings.common.window.0).collect(),
        timeout_us: timeout_us(&prepared),
        placement: asked.placement(system, &with, &last.value),
        switches,
        today,
        offers,
    })
}

fn timeout_us(prepared: &Prepared) -> Option<f64> {
    prepared.jobs.iter().find_map(|job| match job.system {
        fanin_systems::System::Canary(of) => Some(of.timeout_ps as f64 * 1e-6),
        _ => None,
    })
}

fn not_gained(first: &Offer, base: &Value, buys_nothing: bool, budget: f64) -> String {
    let best = &first.steps[first.best];
    let bound = if buys_nothing { &base.bound } else { &best.value.bound };
    let rest = first.steps.len() - 1 - first.best;
    match (buys_nothing, rest) {
        (true, _) => format!("no purchase within {budget} gains {:.0} % or more; what binds is {bound}", WORTH * 100.0),
        (false, 0) => format!("what binds then is {bound}"),
        (false, rest) => format!("{rest} more step{} would gain nothing: what binds is {bound}", if rest == 1 { "" } else { "s" }),
    }
}

struct Asker<'a> {
    setting: &'a Setting,
    question: &'a Question,
    /// What rules say, by system and what aggregates.
    known: BTreeMap<(&'static str, Vec<bool>), Option<Value>>,
    /// The same, simulated.
    confirmed: BTreeMap<(&'static str, Vec<bool>), Option<Value>>,
}

impl Asker<'_> {
    fn index(&self, name: &str) -> Option<usize> {
        self.setting.switches.iter().position(|switch| switch.name == name)
    }

    fn with(&self, able: &[bool], names: &[String]) -> Vec<bool> {
        let mut able = able.to_vec();
        names.iter().filter_map(|name| self.index(name)).for_each(|switch| able[switch] = true);
        able
    }

    /// What a system does where these switches sum; nothing where it cannot.
    fn value(&mut self, system: &'static str, able: &[bool]) -> Option<Value> {
        let key = (system, able.to_vec());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = value(self.setting, system, able, self.question.new, (self.question.draws, false));
        self.known.insert(key, found.clone());
        found
    }

    fn price(&self, switches: &[usize]) -> f64 {
        switches.iter().map(|switch| self.question.prices[*switch]).sum()
    }

    /// Switches that some of the jobs' packets may pass, and that do not sum today.
    fn candidates(&self) -> Result<Vec<usize>, PlanError> {
        let prepared = self.setting.prepare("ring", &self.setting.today(), self.question.new, 0)?;
        let map = &prepared.topology.map;
        let mut leaves: Vec<NodeId> =
            prepared.jobs.iter().flat_map(|job| &job.hosts).filter_map(|host| map.leaf_of(*host)).map(|leaf| leaf.node).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let distances: Vec<Vec<u32>> = leaves.iter().map(|leaf| map.distances(*leaf)).collect();
        let passes = |switch: NodeId| {
            let of = |from: usize, to: usize| {
                let there = distances[from][switch.index()].saturating_add(distances[to][switch.index()]);
                from != to && there == distances[from][leaves[to].index()]
            };
            leaves.contains(&switch) || (0..leaves.len()).any(|from| (0..from).any(|to| of(from, to)))
        };
        let today = self.setting.today();
        Ok(map.switches().enumerate().filter(|(index, switch)| !today[*index] && passes(*switch)).map(|(index, _)| index).collect())
    }

    /// What a system makes of the budget; nothing where it cannot do the jobs, whatever is bought.
    fn offer(&mut self, system: &'static str) -> Result<Option<Offer>, PlanError> {
        let today = self.setting.today();
        let mut steps = Vec::new();
        if let Some(value) = self.value(system, &today) {
            steps.push(Step { switches: Vec::new(), price: 0.0, value });
        }
        if !BY_HOSTS.contains(&system) {
            let candidates = self.candidates()?;
            let groups = match &self.question.order {
                Some(order) => self.ordered(order)?,
                None if self.setting.has_workloads() => self.by_level(&candidates)?,
                None if steps.is_empty() && !PARTIAL.contains(&system) => self.together(system, &candidates),
                None => self.found(system, &candidates),
            };
            let (mut able, mut price) = (today, 0.0);
            let mut names = Vec::new();
            for group in groups {
                price += self.price(&group);
                if price > self.question.budget + 1e-9 {
                    break;
                }
                group.iter().for_each(|switch| able[*switch] = true);
                names.extend(group.iter().map(|switch| self.setting.switches[*switch].name.clone()));
                // Systems that need all switches have no value before these are there.
                if let Some(value) = self.value(system, &able) {
                    steps.push(Step { switches: std::mem::take(&mut names), price, value });
                }
            }
        }
        let score = |step: usize, steps: &[Step]| steps[step].value.score();
        let mut best = 0;
        for step in 1..steps.len() {
            if score(step, &steps) > score(best, &steps) * (1.0 + DEARER) {
                best = step;
            }
        }
        Ok((!steps.is_empty()).then_some(Offer { system, steps, best }))
    }

    fn ordered(&self, order: &[String]) -> Result<Vec<Vec<usize>>, PlanError> {
        let one = |name: &String| {
            let switch = self.index(name);
            switch.map(|switch| vec![switch]).ok_or_else(|| PlanError::new("--order", format!("{name}: expected the name of a switch")))
        };
        order.iter().map(one).collect()
    }

    /// Switches next to hosts, then the others: for workloads, of which each step is a simulation.
    fn by_level(&self, candidates: &[usize]) -> Result<Vec<Vec<usize>>, PlanError> {
        let prepared = self.setting.prepare("ring", &self.setting.today(), self.question.new, 0)?;
        let map = &prepared.topology.map;
        let is_low = |switch: &usize| map.level(NodeId(map.hosts() + *switch as u32)) == 1;
        let (low, high): (Vec<usize>, Vec<usize>) = candidates.iter().partition(|switch| is_low(switch));
        Ok([low, high].into_iter().filter(|group| !group.is_empty()).collect())
    }

    /// All switches that a system needs which does without none: leaves and, one by one, as few others as it works with.
    fn together(&mut self, system: &'static str, candidates: &[usize]) -> Vec<Vec<usize>> {
        let mut able = self.setting.today();
        candidates.iter().for_each(|switch| able[*switch] = true);
        let Some(all) = self.value(system, &able) else { return self.found(system, candidates) };
        let mut needed: Vec<usize> = candidates.to_vec();
        for &switch in candidates.iter().rev() {
            able[switch] = false;
            match self.value(system, &able) {
                Some(value) if value.score() >= all.score() * (1.0 - DEARER) => needed.retain(|one| *one != switch),
                _ => able[switch] = true,
            }
        }
        vec![needed]
    }

    /// The best sets where they are few, else one switch after the other: that which gains most for its price, and of those that gain nothing
    /// by themselves the one that is on most ways.
    fn found(&mut self, system: &'static str, candidates: &[usize]) -> Vec<Vec<usize>> {
        let affordable: Vec<usize> = candidates.iter().copied().filter(|one| self.question.prices[*one] <= self.question.budget).collect();
        let today = self.setting.today();
        let mut able = today.clone();
        let (mut order, mut left) = (Vec::new(), affordable.clone());
        let mut spent = 0.0;
        while !left.is_empty() {
            let now = self.value(system, &able).map_or(0.0, |value| value.score());
            let mut best: Option<(f64, f64, usize)> = None;
            for &switch in &left {
                let price = self.question.prices[switch];
                if spent + price > self.question.budget + 1e-9 {
                    continue;
                }
                able[switch] = true;
                let gains = self.value(system, &able).map_or(0.0, |value| value.score() - now);
                able[switch] = false;
                let per_price = gains / price.max(1e-9);
                // Of those that gain nothing yet, the lowest switches first: sums begin there.
                if best.is_none_or(|(most, _, _)| per_price > most * (1.0 + 1e-9) + 1e-9) {
                    best = Some((per_price, price, switch));
                }
            }
            let Some((_, price, switch)) = best else { break };
            able[switch] = true;
            spent += price;
            left.retain(|one| *one != switch);
            order.push(vec![switch]);
            if order.len() >= STEPS_MAX {
                break;
            }
        }
        match self.best_set(system, &affordable, &today) {
            Some((set, score)) if score > self.best_prefix(system, &order, &today) * (1.0 + DEARER) => vec![set],
            _ => self.pruned(system, order, &today),
        }
    }

    /// The same order without what the best of its steps can do without: roots that another one has taken the place of, say.
    fn pruned(&mut self, system: &'static str, order: Vec<Vec<usize>>, today: &[bool]) -> Vec<Vec<usize>> {
        let most = self.best_prefix(system, &order, today);
        let mut able = today.to_vec();
        let mut kept = Vec::new();
        for group in order {
            if self.value(system, &able).is_some_and(|value| value.score() >= most * (1.0 - 1e-9)) {
                break;
            }
            group.iter().for_each(|switch| able[*switch] = true);
            kept.push(group);
        }
        for place in (0..kept.len()).rev() {
            let group = kept[place].clone();
            group.iter().for_each(|switch| able[*switch] = false);
            if self.value(system, &able).is_some_and(|value| value.score() >= most * (1.0 - DEARER)) {
                kept.remove(place);
            } else {
                group.iter().for_each(|switch| able[*switch] = true);
            }
        }
        kept
    }

    fn best_prefix(&mut self, system: &'static str, order: &[Vec<usize>], today: &[bool]) -> f64 {
        let mut able = today.to_vec();
        let mut most = self.value(system, &able).map_or(0.0, |value| value.score());
        for group in order {
            group.iter().for_each(|switch| able[*switch] = true);
            most = most.max(self.value(system, &able).map_or(0.0, |value| value.score()));
        }
        most
    }

    /// The best of all sets that the budget pays for, where they are few enough.
    fn best_set(&mut self, system: &'static str, candidates: &[usize], today: &[bool]) -> Option<(Vec<usize>, f64)> {
        if candidates.len() > 12 || (1usize << candidates.len()) > SETS_MAX {
            return None;
        }
        let mut best: Option<(Vec<usize>, f64)> = None;
        for set in 1..1usize << candidates.len() {
            let set: Vec<usize> = candidates.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1).map(|(_, one)| *one).collect();
            if self.price(&set) > self.question.budget + 1e-9 {
                continue;
            }
            let mut able = today.to_vec();
            set.iter().for_each(|switch| able[*switch] = true);
            let score = self.value(system, &able).map_or(0.0, |value| value.score());
            if best.as_ref().is_none_or(|(_, most)| score > *most) {
                best = Some((set, score));
            }
        }
        best
    }

    /// The best of what runs without a purchase. It is simulated as what may be bought is, so that gains compare what was found in one way.
    fn today(&mut self, offers: &mut [Offer]) -> Result<Offer, PlanError> {
        let able = self.setting.today();
        let without = |offer: &&mut Offer| offer.steps[0].price <= 0.0 && offer.steps[0].switches.is_empty();
        let mut all: Vec<_> =
            offers.iter_mut().filter(without).map(|offer| (offer.system, able.clone(), &mut offer.steps[0].value)).collect();
        self.settle(&mut all);
        let now = offers.iter().filter(|offer| offer.steps[0].switches.is_empty());
        let best = now.max_by(|a, b| a.steps[0].value.score().total_cmp(&b.steps[0].value.score()));
        let best = best.ok_or_else(|| PlanError::new(&self.setting.name, "no system can do these jobs on this network".to_string()))?;
        Ok(Offer { system: best.system, steps: best.steps[..1].to_vec(), best: 0 })
    }

    /// What a system does, simulated; once where switches do not matter to it. Nothing where a job does not complete.
    fn simulated(&mut self, system: &'static str, able: &[bool]) -> Option<Value> {
        let able = if BY_HOSTS.contains(&system) { self.setting.today() } else { able.to_vec() };
        let (setting, question) = (self.setting, self.question);
        let found = |able: &[bool]| value(setting, system, able, question.new, (question.draws, true));
        self.confirmed.entry((system, able.clone())).or_insert_with(|| found(&able)).clone()
    }

    /// Simulates what may be the best of these systems where some switches sum: until nothing that the rules do not know, or that is near the best as it
    /// is found then, is without a simulation. So nothing is chosen by rules where simulations have brought down what was before it.
    fn settle(&mut self, all: &mut [(&'static str, Vec<bool>, &mut Value)]) {
        loop {
            let most = all.iter().map(|(.., value)| value.score()).fold(0.0, f64::max);
            let Some((system, able, value)) = all.iter_mut().find(|(.., value)| self.is_open(value, most)) else { return };
            **value = self.simulated(system, able).unwrap_or_else(|| value.failed());
        }
    }

    /// Whether a value has to be simulated before it counts, where the most of all is so much.
    fn is_open(&self, value: &Value, most: f64) -> bool {
        let is_near = self.question.simulate && value.score() >= most * CLOSE;
        value.simulated.is_none() && (value.unknown.is_some() || is_near)
    }

    /// Simulates the best step of offers that may be the first choice: what the rules do not know of, and what comes near unless that is not wanted.
    fn confirm(&mut self, offers: &mut [Offer]) {
        let today = self.setting.today();
        let mut all = Vec::new();
        for offer in offers.iter_mut() {
            let names: Vec<String> = offer.steps[..=offer.best].iter().flat_map(|step| step.switches.clone()).collect();
            all.push((offer.system, self.with(&today, &names), &mut offer.steps[offer.best].value));
        }
        self.settle(&mut all);
        let worth = |offer: &Offer| offer.steps[offer.best].value.score();
        offers.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    }

    /// Each new switch in turn does not sum any more, and still forwards: the system goes on where it can, else the best one that can. What comes
    /// near the best is simulated, unless there are many.
    fn failures(&mut self, system: &'static str, able: &[bool], names: &[String]) -> Vec<Failure> {
        let mut found = Vec::new();
        for name in names {
            let mut left = able.to_vec();
            if let Some(switch) = self.index(name) {
                left[switch] = false;
            }
            let mut systems = vec![system];
            systems.extend(BY_HOSTS.iter().copied().filter(|one| self.question.systems.contains(one)));
            let mut values = systems.into_iter().filter_map(|system| Some((system, self.value(system, &left)?))).collect::<Vec<_>>();
            if names.len() <= FAILURES_SIMULATED {
                let mut all: Vec<_> = values.iter_mut().map(|(system, value)| (*system, left.clone(), value)).collect();
                self.settle(&mut all);
            }
            let best = values.into_iter().max_by(|a, b| a.1.score().total_cmp(&b.1.score()));
            found.extend(best.map(|(system, value)| Failure { switch: name.clone(), system, value }));
        }
        found
    }

    /// Whether jobs gain by another placement, where the plan leaves that open.
    fn placement(&self, system: &'static str, able: &[bool], now: &Value) -> Option<(String, f64)> {
        let mut best: Option<(String, f64)> = None;
        for name in ["packed", "spread"] {
            let Some(other) = self.setting.placed(name) else { continue };
            let Some(value) = value(&other, system, able, self.question.new, (self.question.draws, now.simulated.is_some())) else {
                continue;
            };
            let gain = value.score() / now.score() - 1.0;
            if gain > WORTH && best.as_ref().is_none_or(|(_, most)| gain > *most) {
                best = Some((name.to_string(), gain));
            }
        }
        best
    }
}

/// Failures of more new switches are by rules alone.
const FAILURES_SIMULATED: usize = 16;

/// Steps of a plan at most.
const STEPS_MAX: usize = 64;
