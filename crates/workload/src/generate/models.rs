//! Published sizes of models, and what follows from them: parameters and operations of each part.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The data file.
const DATA: &str = include_str!("../../models.toml");

/// Everything in the data file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Transformers by name.
    pub transformers: BTreeMap<String, toml::Table>,
    /// Convolutional networks by name.
    pub convolutional: BTreeMap<String, Convolutional>,
    /// By name of a GPU: its 16-bit operations a second.
    pub gpus: BTreeMap<String, f64>,
}

impl Data {
    /// The data file.
    ///
    /// # Errors
    /// What is wrong with it; it is a part of the program, and tests read it.
    pub fn load() -> Result<Data, String> {
        toml::from_str(DATA).map_err(|error| format!("models.toml: {error}"))
    }

    /// The names of all models.
    pub fn names(&self) -> String {
        self.transformers.keys().chain(self.convolutional.keys()).map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// Numbers of a convolutional network.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolutional {
    /// Published total.
    pub parameters: u64,
    /// Images of a rank in one pass, by default.
    pub batch: u64,
}

/// Sizes of a transformer, as the data file describes them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transformer {
    /// Layers.
    pub layers: u64,
    /// Width.
    pub hidden: u64,
    /// Heads of attention, those of keys and values, and their width.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Inner width of a dense layer's perceptron.
    pub ffn: u64,
    /// Words.
    pub vocabulary: u64,
    /// Tokens of a sequence, by default.
    pub sequence: u64,
    /// Published total.
    pub parameters: u64,
    /// Three matrices in a perceptron in place of two.
    #[serde(default)]
    pub gated: bool,
    /// Learned positions.
    #[serde(default)]
    pub positions: u64,
    /// Learned types of segments.
    #[serde(default)]
    pub types: u64,
    /// One matrix for embedding and output.
    #[serde(default)]
    pub tied: bool,
    /// Matrices and norms have biases.
    #[serde(default)]
    pub biases: bool,
    /// A matrix of hidden by hidden at the end.
    #[serde(default)]
    pub pooler: bool,
    /// Attention to the left only: half of the products.
    #[serde(default)]
    pub causal: bool,
    /// Routed experts of a layer; 0: none.
    #[serde(default)]
    pub experts: u64,
    /// Routed experts that a token goes to.
    #[serde(default)]
    pub active: u64,
    /// Experts that all tokens go to.
    #[serde(default)]
    pub shared: u64,
    /// Inner width of an expert.
    #[serde(default)]
    pub expert_ffn: u64,
    /// First layers that have a dense perceptron though there are experts.
    #[serde(default)]
    pub dense_layers: u64,
    /// Multi-head latent attention.
    pub latent: Option<Latent>,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): ranks of what is compressed, and widths of heads.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Rank of queries.
    pub query: u64,
    /// Rank of keys and values.
    pub key_value: u64,
    /// Width of the part of a head that is rotated.
    pub rope: u64,
    /// Width of the other part.
    pub plain: u64,
    /// Width of a head's values.
    pub value: u64,
}

/// A number of a model at most, so that products of four of them fit 128 bits and all sums 64 where they are checked.
const SIZE_MAX: u64 = 1 << 24;

impl Transformer {
    /// A model of the data file with some of its numbers changed: `layers=40`.
    ///
    /// # Errors
    /// A change that is no number of the model, or out of range.
    pub fn of(table: &toml::Table, changes: &[String]) -> Result<Transformer, String> {
        let mut table = table.clone();
        for change in changes {
            let (key, value) = change.split_once('=').ok_or_else(|| format!("--set {change}: expected key=value, such as layers=40"))?;
            let value: toml::Value = match value.trim() {
                "true" => true.into(),
                "false" => false.into(),
                number => {
                    let number = number.replace('_', "");
                    number.parse::<i64>().map_err(|_| format!("--set {change}: expected a whole number, true or false"))?.into()
                }
            };
            match key.split_once('.') {
                Some(("latent", inner)) => {
                    let latent = table.entry("latent").or_insert_with(|| toml::Table::new().into());
                    latent.as_table_mut().map(|latent| latent.insert(inner.to_string(), value));
                }
                _ => drop(table.insert(key.trim().to_string(), value)),
            }
        }
        let model: Transformer =
            toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| error.message().replace('\n', " "))?;
        model.check()?;
        Ok(model)
    }

    fn check(&self) -> Result<(), String> {
        let positive = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
            ("vocabulary", self.vocabulary),
            ("sequence", self.sequence),
        ];
        let latent = self.latent.map_or([0; 5], |one| [one.query, one.key_value, one.rope, one.plain, one.value]);
        let others = [self.positions, self.types, self.experts, self.active, self.shared, self.expert_ffn, self.dense_layers];
        if let Some((name, value)) = positive.into_iter().find(|(_, value)| *value == 0 || *value > SIZE_MAX) {
            return Err(format!("{name} = {value}: expected 1 to {SIZE_MAX}"));
        }
        if let Some(value) = latent.into_iter().chain(others).find(|value| *value > SIZE_MAX) {
            return Err(format!("{value}: expected at most {SIZE_MAX} for every number of a model"));
        }
        if self.layers > 4_096 || self.experts > 65_536 {
            return Err(format!("layers = {}, experts = {}: expected at most 4096 and 65536", self.layers, self.experts));
        }
        if self.experts > 0 && (self.active == 0 || self.active > self.experts || self.expert_ffn == 0) {
            return Err(format!("active = {}: expected 1 to {} of the experts, and expert_ffn above 0", self.active, self.experts));
        }
        if self.dense_layers > self.layers {
            return Err(format!("dense_layers = {}: expected at most {} layers", self.dense_layers, self.layers));
        }
        if self.largest() > 1e16 { Err("expected a model of at most 10^16 parameters".into()) } else { Ok(()) }
    }

    /// At least as many parameters as the model has, as a float: products of numbers within their bounds may not fit 64 bits.
    fn largest(&self) -> f64 {
        let of = |number: u64| number as f64;
        let hidden = of(self.hidden);
        let attention = match self.latent {
            Some(Latent { query, key_value, rope, plain, value }) => {
                let heads = of(self.heads);
                (of(query) + of(key_value)) * (hidden + 1.0 + heads * of(plain + rope + value)) + hidden * (of(rope) + heads * of(value))
            }
            None => 2.0 * (hidden + 1.0) * (of(self.heads) + of(self.kv_heads)) * of(self.head_dim),
        };
        let experts = of(self.experts + self.shared);
        let perceptrons = 3.0 * (hidden + 1.0) * (of(self.ffn) + experts * of(self.expert_ffn)) + hidden * (2.0 * experts + 8.0);
        let ends = (2.0 * of(self.vocabulary) + of(self.positions) + of(self.types) + hidden + 8.0) * hidden;
        of(self.layers) * (attention + perceptrons) + ends
    }

    /// Whether a layer has experts.
    pub fn has_experts(&self, layer: u64) -> bool {
        self.experts > 0 && layer >= self.dense_layers
    }

    fn bias(&self, width: u64) -> u64 {
        if self.biases { width } else { 0 }
    }

    fn norm(&self) -> u64 {
        self.hidden + self.bias(self.hidden)
    }

    /// Parameters of a layer's attention with its norm.
    pub fn attention(&self) -> u64 {
        let h = self.hidden;
        let matrices = match self.latent {
            Some(Latent { query, key_value, rope, plain, value }) => {
                let queries = h * query + query + query * self.heads * (plain + rope);
                queries + h * (key_value + rope) + key_value + key_value * self.heads * (plain + value) + self.heads * value * h
            }
            None => {
                let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
                h * queries + 2 * h * keys + queries * h + self.bias(queries + 2 * keys + h)
            }
        };
        matrices + self.norm()
    }

    fn perceptron(&self, width: u64) -> u64 {
        let matrices = if self.gated { 3 } else { 2 };
        matrices * self.hidden * width + self.bias((matrices - 1) * width + self.hidden)
    }

    /// Parameters of a layer's dense perceptron, or of its shared experts and router, with its norm.
    pub fn dense(&self, layer: u64) -> u64 {
        let inner = if self.has_experts(layer) {
            self.shared * self.perceptron(self.expert_ffn) + self.hidden * self.experts
        } else {
            self.perceptron(self.ffn)
        };
        inner + self.norm()
    }

    /// Parameters of one routed expert.
    pub fn expert(&self) -> u64 {
        self.perceptron(self.expert_ffn)
    }

    /// Parameters of a layer, routed experts included.
    pub fn layer(&self, layer: u64) -> u64 {
        let routed = if self.has_experts(layer) { self.experts * self.expert() } else { 0 };
        self.attention() + self.dense(layer) + routed
    }

    /// Parameters of the embedding.
    pub fn embedding(&self) -> u64 {
        let norm = if self.types > 0 { self.norm() } else { 0 };
        (self.vocabulary + self.positions + self.types) * self.hidden + norm
    }

    /// Parameters of the output: the last norm, and its matrix where it is not that of the embedding.
    pub fn output(&self) -> u64 {
        let matrix = if self.tied { 0 } else { self.vocabulary * self.hidden };
        let pooler = if self.pooler { self.hidden * self.hidden + self.hidden } else { self.norm() };
        matrix + pooler
    }

    /// Parameters of all.
    pub fn total(&self) -> u64 {
        self.embedding() + self.output() + (0..self.layers).map(|layer| self.layer(layer)).sum::<u64>()
    }

    /// Parameters that a token uses.
    pub fn used(&self) -> u64 {
        let unused = |layer| if self.has_experts(layer) { (self.experts - self.active) * self.expert() } else { 0 };
        self.total() - (0..self.layers).map(unused).sum::<u64>()
    }

    /// Operations of attention in a forward pass, for a token: two for each parameter, and the products with all other tokens, of which a
    /// causal model needs half.
    pub fn attention_operations(&self, sequence: u64) -> f64 {
        2.0 * self.attention() as f64 + self.attention_products(sequence)
    }

    /// Of these, the products with other tokens.
    pub fn attention_products(&self, sequence: u64) -> f64 {
        let width = match self.latent {
            Some(latent) => latent.plain + latent.rope + latent.value,
            None => 2 * self.head_dim,
        };
        let products = 2.0 * sequence as f64 * (self.heads * width) as f64;
        if self.causal { products / 2.0 } else { products }
    }

    /// Operations of what is dense beside attention.
    pub fn dense_operations(&self, layer: u64) -> f64 {
        2.0 * self.dense(layer) as f64
    }

    /// Operations of the experts that a token goes to.
    pub fn expert_operations(&self) -> f64 {
        2.0 * (self.active * self.expert()) as f64
    }

    /// Operations of the output.
    pub fn output_operations(&self) -> f64 {
        2.0 * (self.vocabulary * self.hidden) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_within_a_percent_of_what_was_published() {
        let data = Data::load().unwrap();
        for (name, table) in &data.transformers {
            let model = Transformer::of(table, &[]).unwrap();
            let share = model.total() as f64 / model.parameters as f64;
            assert!((share - 1.0).abs() < 0.01, "{name}: {} of {}", model.total(), model.parameters);
        }
        let used = |name: &str| Transformer::of(&data.transformers[name], &[]).unwrap().used() as f64 / 1e9;
        assert!((used("mixtral-8x7b") / 12.9 - 1.0).abs() < 0.01, "{}", used("mixtral-8x7b"));
        // 37 billion leave out the embedding, as its authors count.
        let deepseek = Transformer::of(&data.transformers["deepseek-v3"], &[]).unwrap();
        let without = (deepseek.used() - deepseek.embedding()) as f64 / 1e9;
        assert!((without / 37.0 - 1.0).abs() < 0.02, "{without}");
    }

    #[test]
    fn exact_totals_of_llama() {
        let data = Data::load().unwrap();
        let total = |name: &str| Transformer::of(&data.transformers[name], &[]).unwrap().total();
        assert_eq!((total("llama3-8b"), total("llama3-70b")), (8_030_261_248, 70_553_706_496));
    }

    #[test]
    fn numbers_are_changed_and_wrong_ones_refused() {
        let data = Data::load().unwrap();
        let of = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|one| (*one).to_string()).collect();
            Transformer::of(&data.transformers["llama3-8b"], &changes)
        };
        assert_eq!(of(&["layers=2", "vocabulary=1_000"]).unwrap().layers, 2);
        assert!(of(&["layer=2"]).unwrap_err().contains("layer"));
        assert_eq!(of(&["layers"]).unwrap_err(), "--set layers: expected key=value, such as layers=40");
        assert_eq!(of(&["layers=many"]).unwrap_err(), "--set layers=many: expected a whole number, true or false");
        assert_eq!(of(&["heads=0"]).unwrap_err(), "heads = 0: expected 1 to 16777216");
        let large = "16777216";
        for keys in [vec!["heads", "head_dim", "hidden"], vec!["kv_heads", "head_dim", "hidden"], vec!["hidden", "ffn", "vocabulary"]] {
            let changes: Vec<String> = keys.iter().map(|key| format!("{key}={large}")).collect();
            let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
            assert_eq!(of(&changes).unwrap_err(), "expected a model of at most 10^16 parameters", "{keys:?}");
        }
        for keys in [["heads", "latent.value", "hidden"], ["heads", "latent.query", "latent.plain"], ["shared", "expert_ffn", "hidden"]] {
            let changes = keys.map(|key| format!("{key}={large}"));
            let refused = Transformer::of(&data.transformers["deepseek-v3"], &changes).unwrap_err();
            assert_eq!(refused, "expected a model of at most 10^16 parameters", "{keys:?}");
        }
        for (name, table) in &data.transformers {
            let model = Transformer::of(table, &[]).unwrap();
            let share = model.largest() / model.total() as f64;
            assert!((1.0..1.6).contains(&share), "{name}: the bound is {share} times what there is");
        }
        assert!(of(&["layers=-1"]).is_err() && of(&["experts=8"]).is_err() && of(&["hidden=99999999"]).is_err());
    }
}
