//! `verdicts.json` of a figure: what a full run gave, so that a quick one can be held against it and tables in READMEs cannot go stale.
//!
//! A record is of a plan and of claims. A digest of both says which: of what they say and not of how they are written, so that comments do
//! not matter, and without what changes no verdict: titles, the paper's words and number, pictures, and what `--quick` does.

use fanin_plan::PlanError;
use fanin_plan::tree::{Kind, Tree};
use serde::{Deserialize, Serialize};

use super::catalog::{Catalog, Figure, RECORD_FILE};
use super::causes::{Changed, Finding, Tried};
use super::claims::{Claims, Class};
use super::evaluate::{Judged, Measured, Outcome, Spread, Verdict};
use super::interval::Seeds;

/// What a full run of a figure gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Of the plan and the claims that it is of.
    digest: String,
    claims: Vec<OfClaim>,
    causes: Vec<OfCause>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct OfClaim {
    id: String,
    class: Class,
    #[serde(flatten)]
    outcome: Flat,
    readings: Vec<OfReading>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct OfReading {
    reading: String,
    #[serde(flatten)]
    outcome: Flat,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfCause {
    id: String,
    finding: Finding,
    claims: Vec<CausesClaim>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CausesClaim {
    id: String,
    finding: Finding,
    why: Option<String>,
    changed: Option<Flat>,
}

/// An outcome as it is written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Flat {
    measured: Numbers,
    interval: Ends,
    seeds: Option<Count>,
    verdict: Verdict,
    reason: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Numbers {
    Nothing,
    One(f64),
    Several(Vec<f64>),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Ends {
    Nothing,
    Two([f64; 2]),
    OfPairs(Vec<[f64; 2]>),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Count {
    Drawn(usize),
    /// `"any"`: the plan draws nothing.
    Any(AnySeed),
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
enum AnySeed {
    #[serde(rename = "any")]
    Any,
}

/// Six digits: more than anything here is worth, and the same wherever it is computed.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

impl Flat {
    fn of(outcome: &Outcome) -> Flat {
        let ends = |pair: &[f64; 2]| pair.map(rounded);
        Flat {
            measured: match &outcome.measured {
                Measured::Nothing => Numbers::Nothing,
                Measured::Number(value) => Numbers::One(rounded(*value)),
                Measured::Range(pair) => Numbers::Several(ends(pair).to_vec()),
                Measured::List(values) => Numbers::Several(values.iter().copied().map(rounded).collect()),
            },
            interval: match &outcome.spread {
                Spread::Nothing => Ends::Nothing,
                Spread::Number(pair) => Ends::Two(ends(pair)),
                Spread::Differences(pairs) => Ends::OfPairs(pairs.iter().map(ends).collect()),
            },
            seeds: outcome.seeds.map(|seeds| match seeds {
                Seeds::Any => Count::Any(AnySeed::Any),
                Seeds::Drawn(count) => Count::Drawn(count),
            }),
            verdict: outcome.verdict,
            reason: outcome.reason.clone(),
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            measured: match (&self.measured, &self.interval) {
                (Numbers::Nothing, _) => Measured::Nothing,
                (Numbers::One(value), _) => Measured::Number(*value),
                // An order has differences; what several places gave has one interval around them.
                (Numbers::Several(values), Ends::Two(_)) if values.len() == 2 => Measured::Range([values[0], values[1]]),
                (Numbers::Several(values), _) => Measured::List(values.clone()),
            },
            spread: match &self.interval {
                Ends::Nothing => Spread::Nothing,
                Ends::Two(pair) => Spread::Number(*pair),
                Ends::OfPairs(pairs) => Spread::Differences(pairs.clone()),
            },
            seeds: self.seeds.as_ref().map(|seeds| match seeds {
                Count::Drawn(count) => Seeds::Drawn(*count),
                Count::Any(_) => Seeds::Any,
            }),
            verdict: self.verdict,
            reason: self.reason.clone(),
        }
    }
}

impl Recorded {
    /// What a full run gave: its claims and causes, and the digest of all that they depend on.
    pub fn of(digest: &str, judged: &[Judged], causes: &[Tried]) -> Recorded {
        let of_claim = |judged: &Judged| OfClaim {
            id: judged.claim.id.clone(),
            class: judged.claim.class,
            outcome: Flat::of(&judged.outcome),
            readings: judged.readings.iter().map(|(name, one)| OfReading { reading: name.clone(), outcome: Flat::of(one) }).collect(),
        };
        let causes_claim = |changed: &Changed| CausesClaim {
            id: changed.claim.id.clone(),
            finding: changed.finding,
            why: changed.reason.clone(),
            changed: changed.after.as_ref().map(Flat::of),
        };
        let of_cause = |tried: &Tried| OfCause {
            id: tried.cause.id.clone(),
            finding: tried.finding(),
            claims: tried.claims.iter().map(causes_claim).collect(),
        };
        let mut claims: Vec<OfClaim> = judged.iter().map(of_claim).collect();
        let mut causes: Vec<OfCause> = causes.iter().map(of_cause).collect();
        claims.sort_by(|one, other| one.id.cmp(&other.id));
        causes.sort_by(|one, other| one.id.cmp(&other.id));
        Recorded { digest: digest.into(), claims, causes }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`PlanError`] where it is none.
    pub fn parse(file: &str, text: &str) -> Result<Recorded, PlanError> {
        serde_json::from_str(text)
            .map_err(|error| PlanError::new(file, format!("expected what a full run gave, as `fanin repro` writes it: {error}")))
    }

    /// What is recorded of a figure.
    ///
    /// # Errors
    /// [`PlanError`] where its file is no record.
    pub fn of_figure(figure: &Figure) -> Result<Option<Recorded>, PlanError> {
        figure.recorded.as_ref().map(|text| Recorded::parse(&figure.file(RECORD_FILE), text)).transpose()
    }

    /// Whether it is of the plan and the claims with this digest.
    pub fn fits(&self, digest: &str) -> bool {
        self.digest == digest
    }

    /// As a file: a line each.
    pub fn text(&self) -> String {
        fn lines<T: Serialize>(all: &[T]) -> String {
            let each: Vec<String> = all.iter().map(|one| serde_json::to_string(one).expect("verdicts are plain data")).collect();
            if each.is_empty() { "[]".into() } else { format!("[\n{}\n]", each.join(",\n")) }
        }
        format!("{{\n\"digest\": \"{}\",\n\"claims\": {},\n\"causes\": {}\n}}\n", self.digest, lines(&self.claims), lines(&self.causes))
    }

    /// What became of a claim, or of it in another reading.
    pub fn outcome(&self, claim: &str, reading: Option<&str>) -> Option<Outcome> {
        let claim = self.claims.iter().find(|one| one.id == claim)?;
        match reading {
            None => Some(claim.outcome.outcome()),
            Some(name) => Some(claim.readings.iter().find(|one| one.reading == name)?.outcome.outcome()),
        }
    }

    /// Its claims, in the order of the file of claims.
    pub fn judged(&self, claims: &Claims) -> Vec<Judged> {
        let of_readings = |id: &str| {
            let names = claims.readings.iter().map(|reading| &reading.name);
            names.filter_map(|name| Some((name.clone(), self.outcome(id, Some(name))?))).collect()
        };
        let one = |claim: &super::claims::Claim| {
            let outcome = self.outcome(&claim.id, None)?;
            Some(Judged { claim: claim.clone(), outcome, readings: of_readings(&claim.id) })
        };
        claims.claims.iter().filter_map(one).collect()
    }

    /// Its causes, in the order of the file of claims.
    pub fn tried(&self, claims: &Claims) -> Vec<Tried> {
        let changed = |one: &CausesClaim| {
            Some(Changed {
                claim: claims.claims.iter().find(|claim| claim.id == one.id)?.clone(),
                before: self.outcome(&one.id, None)?,
                after: one.changed.as_ref().map(Flat::outcome),
                finding: one.finding,
                reason: one.why.clone(),
            })
        };
        let one = |cause: &super::causes::Cause| {
            let own = self.causes.iter().find(|own| own.id == cause.id)?;
            Some(Tried { cause: cause.clone(), claims: own.claims.iter().filter_map(changed).collect() })
        };
        claims.causes.iter().filter_map(one).collect()
    }
}

/// Keys of claims, readings and causes that change no verdict.
const WORDS: [&str; 2] = ["text", "paper"];

/// A digest of all that a figure's verdicts depend on: its plan with its networks, its claims and the plans of its causes.
///
/// # Errors
/// [`PlanError`] where a file is not TOML, or a cause's plan is missing.
pub fn digest(catalog: &Catalog, figure: &Figure, claims: &Claims) -> Result<String, PlanError> {
    let mut all = String::new();
    let mut plan = |file: &str, text: &str| -> Result<(), PlanError> {
        let mut tree = Tree::parse(file, text)?;
        tree.take("plot");
        write(&tree, &mut all);
        Ok(())
    };
    plan(&figure.file("plan.toml"), &figure.plan)?;
    for name in claims.causes.iter().filter_map(|cause| cause.plan.as_ref()) {
        plan(&figure.file(name), &catalog.beside(figure, name)?)?;
    }
    for (name, text) in catalog.networks(&figure.paper, &figure.name) {
        plan(&figure.file(&name), &text)?;
    }
    let mut tree = Tree::parse(&figure.file("claims.toml"), &figure.claims)?;
    tree.take("title");
    tree.take("quick");
    if let Kind::Table(entries) = &mut tree.kind {
        for (_, list) in entries {
            let Kind::List(items) = &mut list.kind else { continue };
            items.iter_mut().for_each(|item| WORDS.iter().for_each(|word| drop(item.take(word))));
        }
    }
    write(&tree, &mut all);
    Ok(format!("{:016x}", fnv(all.as_bytes())))
}

/// A tree's values without their places, tables sorted.
fn write(tree: &Tree, out: &mut String) {
    match &tree.kind {
        Kind::Bool(value) => *out += &format!("{value};"),
        Kind::Integer(value) => *out += &format!("{value};"),
        Kind::Float(value) => *out += &format!("{value:?};"),
        Kind::Text(text) => *out += &format!("{text:?};"),
        Kind::List(items) => {
            out.push('[');
            items.iter().for_each(|item| write(item, out));
            out.push(']');
        }
        Kind::Table(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by(|one, other| one.0.name.cmp(&other.0.name));
            out.push('{');
            for (key, value) in sorted {
                *out += &format!("{:?}=", key.name);
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// FNV-1a of 64 bits: it is to tell what changed by accident, and is the same on every machine.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(measured: Measured, spread: Spread, seeds: Option<Seeds>) -> Outcome {
        Outcome { measured, spread, seeds, verdict: Verdict::Reproduced, reason: Some("why".into()) }
    }

    #[test]
    fn what_is_recorded_is_read_as_it_was() {
        for one in [
            outcome(Measured::Nothing, Spread::Nothing, None),
            outcome(Measured::Number(0.5), Spread::Number([0.25, 0.75]), Some(Seeds::Drawn(3))),
            outcome(Measured::Range([1.0, 2.0]), Spread::Number([0.5, 2.5]), Some(Seeds::Any)),
            outcome(Measured::List(vec![2.0, 1.0]), Spread::Differences(vec![[0.5, 0.75]]), Some(Seeds::Drawn(1))),
            outcome(Measured::List(vec![3.0, 2.0, 1.0]), Spread::Differences(vec![[0.5, 0.75], [0.1, 0.2]]), Some(Seeds::Any)),
        ] {
            let text = serde_json::to_string(&Flat::of(&one)).expect("plain data");
            let read = serde_json::from_str::<Flat>(&text).expect("what was written").outcome();
            assert_eq!(format!("{read:?}"), format!("{one:?}"), "{text}");
        }
        assert_eq!([1.0 / 3.0, 1234567.0, 0.0, -0.000_012_345_678].map(rounded), [0.333333, 1234570.0, 0.0, -0.000_012_345_7]);
    }

    const PLAN: &str = "[model]\nname = \"a\"\nx = 1\n[sweep]\n\"model.y\" = [1, 2.5]\n";
    const CLAIMS: &str =
        "title = \"t\"\n[quick]\nset = [\"a=1\"]\n[[claims]]\nid = \"c\"\ntext = \"says\"\npaper = 2.0\nwindow = [0.5, inf]\n";

    fn of(plan: &str, claims: &str) -> String {
        let figure = Figure::given(plan, claims);
        let none =
            Claims { title: String::new(), draws: true, quick: Default::default(), readings: vec![], claims: vec![], causes: vec![] };
        digest(&Catalog::Embedded, &figure, &none).expect("a digest")
    }

    #[test]
    fn a_digest_is_of_what_verdicts_depend_on() {
        let base = of(PLAN, CLAIMS);
        let same = [
            (PLAN.to_string() + "# a comment\n[[plot]]\nname = \"p\"\n", CLAIMS.to_string()),
            (PLAN.replace("name = \"a\"\nx = 1", "x    = 1\nname = \"a\""), CLAIMS.to_string()),
            (PLAN.to_string(), CLAIMS.replace("says", "says more").replace("2.0", "3.0").replace("\"t\"", "\"u\"")),
            (PLAN.to_string(), CLAIMS.replace("a=1", "a=2")),
        ];
        for (plan, claims) in same {
            assert_eq!(of(&plan, &claims), base, "{plan}{claims}");
        }
        let others = [
            (PLAN.replace("x = 1", "x = 2"), CLAIMS.to_string()),
            (PLAN.replace("2.5", "2.6"), CLAIMS.to_string()),
            (PLAN.to_string(), CLAIMS.replace("inf", "1.0")),
            (PLAN.to_string(), CLAIMS.replace("\"c\"", "\"d\"")),
            (PLAN.to_string(), CLAIMS.to_string() + "[[causes]]\nid = \"e\"\n"),
        ];
        for (plan, claims) in others {
            assert_ne!(of(&plan, &claims), base, "{plan}{claims}");
        }
    }
}
