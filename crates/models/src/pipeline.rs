//! A program on a switch of match-action stages: which shares of its arithmetic units and of its memory registers take (Canary 5.1).

use crate::{Model, Parameter, Quantity};

const fn whole(key: &'static str, title: &'static str, usual: f64) -> Parameter {
    Parameter { key, title, usual, whole: true, low: 1.0, high: 1e9, inclusive: true }
}

/// `fanin model pipeline`.
pub(crate) const PIPELINE: Model = Model {
    name: "pipeline",
    title: "A switch of match-action stages: shares of its stateful units and of its memory that a program's registers take",
    about: "Every register is one stateful unit's, and a packet has one access to it. So a program that adds 32 words and keeps 7 registers\n\
            beside them takes 39 of 12 stages' 48 units (Canary 5.1: 81.25 %). Memory comes in blocks of which a register takes whole ones; each\n\
            pipeline has its own units and its own memory, and a share is one of a pipeline. Descriptors that a switch has in all\n\
            are divided among its pipelines, for a packet sees only the memory of the pipeline that it is in. Tables and the memory that a\n\
            compiler adds are not counted.",
    parameters: &[
        whole("words", "words of 4 bytes that a pass adds", 32.0),
        whole("registers", "registers beside them", 7.0),
        whole("other_bytes", "bytes of an entry in those", 10.0),
        whole("entries", "entries of the switch: descriptors, or versions of slots", 32_768.0),
        whole("pipelines", "pipelines among which they are divided", 2.0),
        whole("stages", "stages of a pipeline", 12.0),
        whole("units", "stateful units of a stage", 4.0),
        whole("blocks", "blocks of memory of a stage", 80.0),
        whole("block_bytes", "bytes of a block", 16_384.0),
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "units_used", title: "stateful units", equation: "words + registers" },
        Quantity { key: "units_percent", title: "% of a pipeline's stateful units", equation: "100 (words + registers) / (stages units)" },
        Quantity { key: "bytes", title: "bytes of a pipeline's registers", equation: "entries / pipelines (4 words + other_bytes)" },
        Quantity { key: "memory_percent", title: "% of a pipeline's memory", equation: "100 ceil(bytes / block_bytes) / (stages blocks)" },
        Quantity {
            key: "words_percent",
            title: "% of a pipeline's memory that the words alone take",
            equation: "100 words ceil(4 entries / pipelines / block_bytes) / (stages blocks)",
        },
    ],
    evaluate: |parameters| {
        let &[words, registers, other_bytes, entries, pipelines, stages, units, blocks, block_bytes] = parameters else {
            unreachable!("nine parameters")
        };
        let (used, here) = (words + registers, (entries / pipelines).ceil());
        let all_blocks = stages * blocks;
        let word_blocks = words * (4.0 * here / block_bytes).ceil();
        let other_blocks = (other_bytes * here / block_bytes).ceil();
        Ok(vec![
            used,
            100.0 * used / (stages * units),
            here * (4.0 * words + other_bytes),
            100.0 * (word_blocks + other_blocks) / all_blocks,
            100.0 * word_blocks / all_blocks,
        ])
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn with(changes: &[(&str, f64)]) -> Vec<f64> {
        let mut values: Vec<f64> = PIPELINE.parameters.iter().map(|parameter| parameter.usual).collect();
        for (key, value) in changes {
            values[PIPELINE.parameters.iter().position(|parameter| parameter.key == *key).expect("a parameter")] = *value;
        }
        PIPELINE.evaluate(&values).expect("in range")
    }

    /// 81.25 % are 39 of 48 units, and 14.38 % are 138 of 960 blocks: 16 Ki descriptors of 138 bytes in each of two pipelines.
    #[test]
    fn shares_of_canarys_prototype() {
        let of_paper = with(&[]);
        assert_eq!(of_paper[..2], [39.0, 81.25]);
        assert_eq!(of_paper[2], 16_384.0 * 138.0);
        assert_eq!(of_paper[3], 14.375);
        // In one pipeline the data alone would take more.
        let one = with(&[("pipelines", 1.0)]);
        assert!((one[4] - 26.667).abs() < 1e-3 && (one[3] - 28.75).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn a_register_takes_whole_blocks() {
        assert_eq!(with(&[("entries", 2.0), ("blocks", 100.0), ("stages", 1.0)])[3], 33.0);
        assert_eq!(with(&[("entries", 3.0), ("pipelines", 2.0)])[2], 2.0 * 138.0);
    }
}
