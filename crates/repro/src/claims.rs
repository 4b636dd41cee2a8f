//! `claims.toml`: what a paper says of one of its figures, as data beside the plan that puts it to the test.
//!
//! ```toml
//! title = "Goodput for different congestion intensity"
//!
//! [quick]
//! set = ["run.repetitions=1"]
//!
//! [[readings]]
//! name = "literal"
//! text = "background traffic is routed adaptively, too"
//! replace = { condition = { congested = "literal" } }
//!
//! [[claims]]
//! id = "canary-at-5"
//! class = "SIM"
//! text = "When using only 5% of the hosts [...], Canary performance only decreases by 20%"
//! paper = 0.8
//! where = { "jobs.0.workers" = "5%", series = "Canary" }
//! ratio = [{ condition = "congested" }, { condition = "idle" }]
//! window = [0.7, 0.9]
//! ```

mod causes;

use std::collections::BTreeMap;
use std::fmt;

use fanin_plan::choices::Places;
use fanin_plan::metrics::Fields;
use fanin_plan::read::read;
use fanin_plan::tree::{Step, Tree};
use fanin_plan::{Axis, PlanError};
use serde::de::{Deserialize, Deserializer, Error};

use super::cause::Cause;
use super::interval::Region;
pub use super::statistic::{Statistic, Window};

/// A figure's claims.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// What the figure shows.
    pub title: String,
    /// Whether the plan draws random numbers: where it does not, every seed gives the same numbers, and a run of several seeds in which
    /// they differ is an error.
    #[serde(default = "yes")]
    pub draws: bool,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// Other ways to read the text, which are held against the claims beside the plan's own.
    #[serde(default)]
    pub readings: Vec<Reading>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Why claims come out as they do.
    #[serde(default)]
    pub causes: Vec<Cause>,
}

/// `[quick]`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Changes of the plan, each a `KEY=VALUE` as for `--set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The claims of which that leaves out a point. Checked both ways: a first look is not to lose a claim unseen.
    #[serde(default)]
    pub drops: Vec<String>,
}

/// `[[readings]]`: the same claims, held against other points of the same plan.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Its name in tables.
    pub name: String,
    /// What is read differently.
    pub text: String,
    /// By axis: which place stands for which.
    pub replace: BTreeMap<String, BTreeMap<String, String>>,
}

/// By what a claim can be tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Class {
    /// Packet-level simulation.
    Sim,
    /// Arithmetic.
    Ana,
    /// Special hardware.
    Hw,
    /// Software on ordinary machines.
    Sw,
    /// No claim that could fail: a formula held against itself, a constant of our own, a property by construction. Counted apart.
    #[serde(rename = "consistency")]
    Consistency,
}

impl Class {
    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Class::Sim => "SIM",
            Class::Ana => "ANA",
            Class::Hw => "HW",
            Class::Sw => "SW",
            Class::Consistency => "consistency",
        }
    }
}

/// `[[claims]]`: one claim. Exactly one of `value`, `ratio`, `difference` and `order` says what is measured; with `untestable` there
/// is none.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name within the figure.
    pub id: String,
    /// What the paper says, quoted or shortened.
    pub text: String,
    /// The paper's own number, in the unit of what is measured.
    pub paper: Option<f64>,
    /// By what it can be tested.
    pub class: Class,
    /// The number of a run that is looked at.
    #[serde(default = "goodput")]
    pub field: String,
    /// What all selections share.
    #[serde(default, rename = "where")]
    pub shared: Selection,
    /// A number.
    pub value: Option<Selection>,
    /// The first over the second, run by run with the same seed.
    pub ratio: Option<[Selection; 2]>,
    /// The first less the second, run by run with the same seed.
    pub difference: Option<[Selection; 2]>,
    /// Each is more than the next.
    pub order: Option<Vec<Selection>>,
    /// Beside `order`: the places of what each of its numbers is divided by, run by run with the same seed.
    pub per: Option<Selection>,
    /// Holds only if it holds at every place of these axes.
    #[serde(default)]
    pub at_each: Vec<String>,
    /// Holds if it holds at one place of these axes. Not beside `at_each`.
    #[serde(default)]
    pub at_some: Vec<String>,
    /// Which repetition counts.
    #[serde(default)]
    pub repetitions: Statistic,
    /// Lowest and highest number that agrees with the claim; `inf` and `-inf` leave an end open.
    pub window: Option<Window>,
    /// By how much each of an order must be more than the next, as a share of what both are on average.
    pub margin: Option<f64>,
    /// Why what is measured is held against nothing.
    pub reported: Option<String>,
    /// Why nothing that is measured here can tell.
    pub untestable: Option<String>,
}

/// Which points of the plan: places on axes, and what to do with several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// By axis: its places.
    pub places: BTreeMap<String, Vec<String>>,
    /// Another number of a run than the claim's.
    pub field: Option<String>,
    /// Which of several points counts.
    pub over: Option<Statistic>,
}

/// The margin of an order that does not say its own.
pub const MARGIN: f64 = 0.01;

fn yes() -> bool {
    true
}

fn goodput() -> String {
    "goodput_gbps".into()
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut selection = Selection::default();
        for (axis, Places(places)) in BTreeMap::<String, Places>::deserialize(deserializer)? {
            match (axis.as_str(), places.as_slice()) {
                ("field", [field]) => selection.field = Some(field.clone()),
                ("over", [over]) => {
                    let over = Statistic::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(over));
                    let expected = "over: expected \"median\", \"mean\", \"lowest\" or \"highest\"";
                    selection.over = Some(over.map_err(|_| D::Error::custom(expected))?);
                }
                _ => {
                    selection.places.insert(axis, places);
                }
            }
        }
        Ok(selection)
    }
}

impl Selection {
    /// The selection with what it shares with others; its own places go first.
    pub fn within(&self, shared: &Selection) -> Selection {
        let mut places = shared.places.clone();
        places.extend(self.places.clone());
        let field = self.field.clone().or_else(|| shared.field.clone());
        Selection { places, field, over: self.over.or(shared.over) }
    }

    /// Its places with their axes, in words.
    pub fn place_text(&self) -> String {
        self.places.iter().map(|(axis, places)| format!("{axis} {}", places.join("/"))).collect::<Vec<_>>().join(", ")
    }

    /// In words: `Canary, congested`.
    pub fn describe(&self) -> String {
        let mut parts: Vec<String> = self.places.values().map(|places| places.join("/")).collect();
        parts.extend(self.field.clone());
        let text = parts.join(", ");
        match self.over {
            Some(over) => format!("{} of {text}", over.text()),
            None => text,
        }
    }
}

impl Claim {
    /// What is measured, in the order of the file; empty where nothing is.
    pub fn selections(&self) -> Vec<Selection> {
        let pairs = [&self.ratio, &self.difference].into_iter().flatten().flatten();
        let own = self.value.iter().chain(pairs).chain(self.order.iter().flatten()).cloned();
        let below = self.order.iter().flatten().filter_map(|one| self.below(one));
        own.chain(below).collect()
    }

    /// What a number of an order is divided by.
    pub fn below(&self, one: &Selection) -> Option<Selection> {
        self.per.as_ref().map(|per| per.within(one))
    }

    /// The axes along which it is held against several places.
    pub fn places_along(&self) -> &[String] {
        if self.at_some.is_empty() { &self.at_each } else { &self.at_some }
    }

    /// What agrees with it; `None` where nothing is asked.
    pub fn region(&self) -> Option<Region> {
        match self.order {
            Some(_) => Some(Region::Above(self.margin.unwrap_or(MARGIN))),
            None => self.window.map(Region::Within),
        }
    }

    /// The number that a selection looks at.
    pub fn field_of<'a>(&'a self, selection: &'a Selection) -> &'a str {
        selection.field.as_ref().unwrap_or(&self.field)
    }
}

impl Claims {
    /// Reads claims and checks that they speak of what the plan varies and of numbers that there are. `axes` are those of the whole plan:
    /// not of the quick one.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn parse(file: &str, text: &str, axes: &[Axis], fields: Fields) -> Result<Claims, PlanError> {
        let tree = Tree::parse(file, text)?;
        let claims: Claims = read(file, &tree, &[])?;
        let check = Check { file, tree: &tree, axes, fields };
        for (index, reading) in claims.readings.iter().enumerate() {
            check.reading(reading, index)?;
        }
        for (index, claim) in claims.claims.iter().enumerate() {
            check.claim(claim, index)?;
            if claims.claims[..index].iter().any(|other| other.id == claim.id) {
                return Err(check.refuse(index, &["id"], format!("{:?}", claim.id), "another name for each claim"));
            }
        }
        for (index, id) in claims.quick.drops.iter().enumerate() {
            let known = claims.claims.iter().any(|claim| claim.id == *id && !claim.selections().is_empty());
            if !known || claims.quick.drops[..index].contains(id) {
                return Err(refuse_drops(file, &tree, id, "claims of this file that are measured, each once"));
            }
        }
        for (index, cause) in claims.causes.iter().enumerate() {
            let names = claims.causes[..index].iter().map(|other| &other.id);
            causes::check(cause, &claims, names)
                .map_err(|wrong| check.refuse_at("causes", index, &wrong.keys, wrong.value, wrong.expected))?;
        }
        Ok(claims)
    }
}

/// What is wrong with `quick.drops`.
fn refuse_drops(file: &str, tree: &Tree, value: &str, expected: &str) -> PlanError {
    let path = ["quick", "drops"].map(|key| Step::Key(key.into()));
    PlanError::new(file, format!("quick.drops = {value:?}: expected {expected}")).at(tree.closest(&path).origin.clone())
}

/// Holds `quick.drops` against what the quick plan leaves out: of each claim that misses a point, what it misses.
///
/// # Errors
/// [`PlanError`] where a claim that it leaves out is not listed, or a listed one is not left out.
pub fn check_drops(file: &str, text: &str, claims: &Claims, left_out: impl Fn(&Claim) -> Option<String>) -> Result<(), PlanError> {
    let measured = claims.claims.iter().filter(|claim| !claim.selections().is_empty());
    let all: Vec<(&Claim, Option<String>)> = measured.map(|claim| (claim, left_out(claim))).collect();
    for (claim, what) in &all {
        let expected = match (what, claims.quick.drops.contains(&claim.id)) {
            (Some(what), false) => format!("it listed: --quick leaves out {what}"),
            (None, true) => "no claim of which --quick leaves nothing out".into(),
            _ => continue,
        };
        let drops: Vec<&String> = all.iter().filter(|(_, what)| what.is_some()).map(|(claim, _)| &claim.id).collect();
        return Err(refuse_drops(file, &Tree::parse(file, text)?, &claim.id, &format!("{expected}; drops = {drops:?}")));
    }
    Ok(())
}

/// Holds claims against the plan.
struct Check<'a> {
    file: &'a str,
    tree: &'a Tree,
    axes: &'a [Axis],
    fields: Fields,
}

impl Check<'_> {
    fn refuse(&self, claim: usize, keys: &[&str], value: impl fmt::Display, expected: impl fmt::Display) -> PlanError {
        self.refuse_at("claims", claim, keys, value, expected)
    }

    fn refuse_at(&self, list: &str, index: usize, keys: &[&str], value: impl fmt::Display, expected: impl fmt::Display) -> PlanError {
        let steps = [Step::Key(list.into()), Step::Index(index)];
        let path: Vec<Step> = steps.into_iter().chain(keys.iter().map(|key| Step::Key((*key).into()))).collect();
        let key = keys.iter().map(|key| format!(".{key}")).collect::<String>();
        let what = format!("{list}[{index}]{key} = {value}: expected {expected}");
        PlanError::new(self.file, what).at(self.tree.closest(&path).origin.clone())
    }

    fn reading(&self, reading: &Reading, index: usize) -> Result<(), PlanError> {
        for (axis, places) in &reading.replace {
            for place in places.iter().flat_map(|(from, to)| [from, to]) {
                self.place(axis, place)
                    .map_err(|(value, expected)| self.refuse_at("readings", index, &["replace", axis], value, expected))?;
            }
        }
        Ok(())
    }

    /// What is measured and what it is held against must fit together; the key that says what is measured.
    fn kind(&self, claim: &Claim, index: usize) -> Result<Option<&'static str>, PlanError> {
        let kinds = [
            ("value", claim.value.is_some()),
            ("ratio", claim.ratio.is_some()),
            ("difference", claim.difference.is_some()),
            ("order", claim.order.is_some()),
        ];
        let given: Vec<&'static str> = kinds.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        let refuse = |keys: &[&str], value: String, expected: String| Err(self.refuse(index, keys, value, expected));
        let (id, order) = (format!("{:?}", claim.id), claim.order.is_some());
        match given.as_slice() {
            [] if claim.untestable.is_some() => {}
            [] => return refuse(&[], id, "value, ratio, difference or order, or untestable with a reason".into()),
            [_] if claim.untestable.is_some() => {
                return refuse(&["untestable"], "...".into(), "reported with a reason where something is measured".into());
            }
            [_] => {}
            [first, second, ..] => return refuse(&[second], "...".into(), format!("one of {first} and {second}")),
        }
        if claim.reported.is_some() && given.is_empty() {
            return refuse(&["reported"], "...".into(), "value, ratio, difference or order beside it".into());
        }
        if claim.reported.is_some() && claim.window.is_some() {
            return refuse(&["window"], "...".into(), "no window where what is measured is only reported".into());
        }
        if !given.is_empty() && claim.reported.is_none() && !order && claim.window.is_none() {
            return refuse(&[], id, "a window, [lowest, highest], or reported with a reason".into());
        }
        if order && claim.window.is_some() {
            return refuse(&["window"], "...".into(), "no window with order".into());
        }
        if let Some(margin) = claim.margin.filter(|margin| !order || !(0.0..2.0).contains(margin)) {
            return refuse(&["margin"], margin.to_string(), "a share, 0 or more and below 2, beside order".into());
        }
        if !order && claim.per.is_some() {
            return refuse(&["per"], "...".into(), "order beside it".into());
        }
        if claim.order.as_ref().is_some_and(|order| order.len() < 2) {
            return refuse(&["order"], "...".into(), "two or more, the highest first".into());
        }
        if !claim.at_each.is_empty() && !claim.at_some.is_empty() {
            return refuse(&["at_some"], "...".into(), "one of at_each and at_some".into());
        }
        Ok(given.first().copied())
    }

    fn claim(&self, claim: &Claim, index: usize) -> Result<(), PlanError> {
        let given = self.kind(claim, index)?;
        let refuse = |keys: &[&str], value: String, expected: String| Err(self.refuse(index, keys, value, expected));
        for (key, axes) in [("at_each", &claim.at_each), ("at_some", &claim.at_some)] {
            if let Some(axis) = axes.iter().find(|axis| !self.axes.iter().any(|known| known.name == **axis)) {
                return refuse(&[key], format!("{axis:?}"), self.axes_text());
            }
        }
        let own = given.unwrap_or("where");
        for selection in claim.selections() {
            self.selection(claim, &selection.within(&claim.shared))
                .map_err(|(value, expected)| self.refuse(index, &[own], value, expected))?;
        }
        Ok(())
    }

    /// What is wrong: the value, and what was expected.
    fn selection(&self, claim: &Claim, selection: &Selection) -> Result<(), (String, String)> {
        let field = claim.field_of(selection);
        if self.fields.named(field).is_none() {
            return Err((format!("{field:?}"), format!("a field, {}", self.fields.known())));
        }
        for (axis, places) in &selection.places {
            for place in places {
                self.place(axis, place)?;
            }
        }
        let chosen = |axis: &str| selection.places.get(axis).map_or(usize::MAX, Vec::len);
        let open =
            self.axes.iter().find(|axis| axis.choices.len() > 1 && chosen(&axis.name) > 1 && !claim.places_along().contains(&axis.name));
        match open {
            Some(axis) if selection.over.is_none() => {
                let expected = format!("one place on the axis {:?}, at_each, at_some, or over = \"lowest\" or the like", axis.name);
                Err((selection.describe(), expected))
            }
            _ => Ok(()),
        }
    }

    fn place(&self, axis: &str, place: &str) -> Result<(), (String, String)> {
        let Some(known) = self.axes.iter().find(|known| known.name == axis) else {
            return Err((format!("{axis:?}"), self.axes_text()));
        };
        if known.choices.iter().any(|choice| choice.label == place) {
            return Ok(());
        }
        let places: Vec<String> = known.choices.iter().map(|choice| format!("{:?}", choice.label)).collect();
        Err((format!("{place:?}"), format!("a place on the axis {axis:?} of the plan: {}", places.join(", "))))
    }

    fn axes_text(&self) -> String {
        let axes: Vec<String> = self.axes.iter().map(|axis| format!("{:?}", axis.name)).collect();
        format!("what the plan varies: {}", axes.join(", "))
    }
}
