//! What the page of a paper says of its claims: texts, ready to be set.

/// What has become of a paper's claims.
pub struct Verdicts {
    /// By verdict.
    pub claims: Vec<Count>,
    /// The same of claims that could not fail.
    pub consistency: Vec<Count>,
    /// By finding.
    pub causes: Vec<Count>,
    /// How many verdicts rest on one seed.
    pub by_one_seed: usize,
    /// Figure by figure.
    pub figures: Vec<FigureRows>,
    /// What the paper shows.
    pub entries: Vec<EntryRow>,
}

/// How many have become what.
pub struct Count {
    /// How many.
    pub number: usize,
    /// What they have become.
    pub text: &'static str,
    /// The name of its style.
    pub style: String,
}

/// The claims of a figure.
pub struct FigureRows {
    /// Its folder.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Other readings of the text: name, and what is read differently.
    pub readings: Vec<(String, String)>,
    /// Its claims, each followed by its readings.
    pub claims: Vec<ClaimRow>,
}

/// A claim, or the same claim in another reading.
pub struct ClaimRow {
    /// Its name.
    pub name: String,
    /// It is another reading of the claim above it.
    pub is_reading: bool,
    /// What kind of claim it is.
    pub class: &'static str,
    /// In words.
    pub text: String,
    /// Why its verdict is as it is.
    pub reason: Option<String>,
    /// What the paper has.
    pub paper: String,
    /// What was measured.
    pub measured: String,
    /// In what interval.
    pub interval: String,
    /// By how many seeds.
    pub seeds: String,
    /// What would agree with the paper.
    pub window: String,
    /// The verdict.
    pub verdict: String,
    /// The name of its style.
    pub style: String,
    /// Of a full run, where it is another one.
    pub full: Option<String>,
    /// Causes that are given for it.
    pub causes: Vec<CauseRow>,
}

/// A cause that is given for a claim.
pub struct CauseRow {
    /// What became of it.
    pub finding: &'static str,
    /// The name of its style.
    pub style: String,
    /// In words.
    pub text: String,
    /// What was changed, and what was expected of it.
    pub change: String,
    /// What came of it.
    pub came: String,
}

/// Something that the paper shows.
pub struct EntryRow {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub what: String,
    /// Claims that cover it, with their verdicts.
    pub claims: String,
    /// Why it has none.
    pub why: String,
}
