//! The examples of `docs/workloads.md` are workloads.

use fanin_workload::{Summary, Workload, validate};

/// The parts of the document between three backquotes and the word, each with the line that it begins at.
fn parts(text: &str, word: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_inside = !is_inside && line == format!("```{word}");
            if is_inside {
                parts.push(String::new());
            }
        } else if is_inside && let Some(part) = parts.last_mut() {
            part.push_str(&format!("{line}\n"));
        }
    }
    parts
}

#[test]
fn examples_are_taken_and_lead_back() {
    let document = include_str!("../../../docs/workloads.md");
    let examples = parts(document, "toml");
    // The others are plans: a test of plans runs one; one needs a trace that is not here.
    assert_eq!(examples.len(), 3);
    for text in examples.into_iter().filter(|text| text.starts_with("workload = 1")) {
        let workload = Workload::from_toml("docs/workloads.md", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let checked = validate(&workload, "docs/workloads.md").unwrap_or_else(|error| panic!("{error}"));
        let again = Workload::from_toml("again.toml", &workload.to_toml()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.to_toml(), workload.to_toml());
        let summary = Summary::new(&workload, &checked);
        // Four layers of the first stage, then four of the last.
        assert_eq!(summary.span.map(|span| span.as_ps()), Some(2_000_000_000));
        assert_eq!(summary.sends.map(|sends| sends.in_all), Some(4));
        assert_eq!(summary.collectives.iter().map(|row| row.in_all).collect::<Vec<_>>(), [16, 4]);
    }
}

#[test]
fn every_word_of_the_format_is_in_the_document() {
    let document = include_str!("../../../docs/workloads.md");
    for kind in fanin_workload::CollectiveKind::ALL {
        assert!(document.contains(&format!("`\"{kind}\"`")), "{kind}");
    }
    assert!(document.contains(&format!("`element` is one of {}.", fanin_workload::Element::names())));
}
