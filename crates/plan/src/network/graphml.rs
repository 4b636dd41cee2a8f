//! GraphML, as networkx and yEd write it: nodes and edges with data.
//!
//! A node is a host if its datum `kind` says `host`, a switch if that says `switch`; it goes by its datum `name` or else by its id. Other data
//! are those of `[[switches]]` and `[[links]]` of a network as TOML: `aggregates`, `aggregation_rate`, `memory`; `rate`, `latency`, `cost`,
//! `count`. Data of the graph are its `defaults`. Data of other names are not looked at.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};

use crate::reading::PlanError;
use crate::reading::tree::{Key, Kind, Origin, Tree};

const SWITCH_DATA: &[&str] = &["aggregates", "aggregation_rate", "memory"];
const LINK_DATA: &[&str] = &["rate", "latency", "cost", "count"];
const DEFAULT_DATA: &[&str] = &["rate", "latency"];

/// The network as it would stand in TOML; every value knows its line.
///
/// # Errors
/// [`PlanError`] with the line that is no GraphML.
pub fn tree(file: &str, text: &str) -> Result<Tree, PlanError> {
    let document =
        Document::parse(text).map_err(|error| PlanError::new(file, format!("not XML: {error}")).at(Origin::Line(error.pos().row)))?;
    let reader = Reader { file, document: &document, keys: declared(&document) };
    let graph = document.root_element().children().find(|node| node.has_tag_name("graph") || node.tag_name().name() == "graph");
    let Some(graph) = graph else {
        return Err(PlanError::new(file, "no graph: expected GraphML, a graphml element with a graph in it").at(Origin::Line(1)));
    };
    reader.graph(graph)
}

/// By id and element: name and type of a datum.
type Declared<'a> = BTreeMap<&'a str, (&'a str, &'a str)>;

fn declared<'a>(document: &'a Document<'_>) -> Declared<'a> {
    let keys = document.root_element().children().filter(|node| node.tag_name().name() == "key");
    let key = |node: Node<'a, '_>| {
        let id = node.attribute("id")?;
        Some((id, (node.attribute("attr.name").unwrap_or(id), node.attribute("attr.type").unwrap_or("string"))))
    };
    keys.filter_map(key).collect()
}

struct Reader<'a> {
    file: &'a str,
    document: &'a Document<'a>,
    keys: Declared<'a>,
}

impl<'a> Reader<'a> {
    fn line(&self, node: Node<'_, '_>) -> Origin {
        Origin::Line(self.document.text_pos_at(node.range().start).row)
    }

    fn refuse(&self, node: Node<'_, '_>, what: String) -> PlanError {
        PlanError::new(self.file, what).at(self.line(node))
    }

    fn graph(&self, graph: Node<'a, 'a>) -> Result<Tree, PlanError> {
        let (mut hosts, mut switches, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = BTreeMap::new();
        for node in graph.children().filter(|node| node.tag_name().name() == "node") {
            let id = node.attribute("id").ok_or_else(|| self.refuse(node, "a node without an id".into()))?;
            let data = self.data(node)?;
            let text = |name: &str| data.get(name).map(|value| value.label());
            let name = text("name").unwrap_or_else(|| id.to_string());
            names.insert(id, name.clone());
            let name = self.value(node, Kind::Text(name));
            match text("kind").as_deref() {
                Some("host") => hosts.push(name),
                Some("switch") => switches.push(self.table(node, [("name", name)], &data, SWITCH_DATA)),
                other => {
                    let value = other.unwrap_or("missing");
                    return Err(self.refuse(node, format!("kind of node {id} = {value}: expected host or switch")));
                }
            }
        }
        for edge in graph.children().filter(|node| node.tag_name().name() == "edge") {
            let end = |key: &str| {
                let id = edge.attribute(key).unwrap_or_default();
                let name = names.get(id).ok_or_else(|| self.refuse(edge, format!("{key} of an edge = {id}: expected the id of a node")))?;
                Ok(self.value(edge, Kind::Text(name.clone())))
            };
            let ends = [("from", end("source")?), ("to", end("target")?)];
            links.push(self.table(edge, ends, &self.data(edge)?, LINK_DATA));
        }
        let defaults = self.table(graph, [], &self.data(graph)?, DEFAULT_DATA);
        let lists =
            [("hosts", hosts), ("switches", switches), ("links", links)].map(|(name, items)| (name, self.value(graph, Kind::List(items))));
        Ok(self.table(graph, lists.into_iter().chain([("defaults", defaults)]), &BTreeMap::new(), &[]))
    }

    /// An element's data by name.
    fn data(&self, element: Node<'a, 'a>) -> Result<BTreeMap<&'a str, Tree>, PlanError> {
        let mut data = BTreeMap::new();
        for datum in element.children().filter(|node| node.tag_name().name() == "data") {
            let id = datum.attribute("key").unwrap_or_default();
            let &(name, kind) =
                self.keys.get(id).ok_or_else(|| self.refuse(datum, format!("key of a datum = {id}: expected the id of a key")))?;
            let text = datum.text().unwrap_or_default().trim();
            let value = match kind {
                "boolean" => text.to_ascii_lowercase().parse().ok().map(Kind::Bool),
                "int" | "long" => text.parse().ok().map(Kind::Integer),
                "float" | "double" => text.parse().ok().map(Kind::Float),
                _ => Some(Kind::Text(text.to_string())),
            };
            let value = value.ok_or_else(|| self.refuse(datum, format!("{name} = {text}: expected a {kind}")))?;
            data.insert(name, self.value(datum, value));
        }
        Ok(data)
    }

    fn value(&self, node: Node<'_, '_>, kind: Kind) -> Tree {
        Tree { kind, origin: self.line(node) }
    }

    /// A table of what is given, and of those data that are known.
    fn table<'k>(
        &self,
        node: Node<'_, '_>,
        given: impl IntoIterator<Item = (&'k str, Tree)>,
        data: &BTreeMap<&str, Tree>,
        known: &[&'k str],
    ) -> Tree {
        let of_data = known.iter().filter_map(|name| Some((*name, data.get(name)?.clone())));
        let key = |name: &str, origin: &Origin| Key { name: name.to_string(), origin: origin.clone() };
        let entries = given.into_iter().chain(of_data).map(|(name, value)| (key(name, &value.origin), value)).collect();
        self.value(node, Kind::Table(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::file::{LinkDefaults, NetworkFile};

    /// As `networkx.write_graphml` writes it.
    const GRAPH: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d4" for="edge" attr.name="rate" attr.type="string" />
  <key id="d3" for="node" attr.name="aggregates" attr.type="boolean" />
  <key id="d2" for="node" attr.name="colour" attr.type="string" />
  <key id="d1" for="graph" attr.name="latency" attr.type="string" />
  <key id="d0" for="node" attr.name="kind" attr.type="string" />
  <graph edgedefault="undirected">
    <data key="d1">300ns</data>
    <node id="a"><data key="d0">host</data><data key="d2">red</data></node>
    <node id="b"><data key="d0">host</data></node>
    <node id="s">
      <data key="d0">switch</data>
      <data key="d3">True</data>
    </node>
    <edge source="a" target="s"><data key="d4">100Gb/s</data></edge>
    <edge source="s" target="b"><data key="d4">40Gb/s</data></edge>
  </graph>
</graphml>
"#;

    fn parse(text: &str) -> Result<NetworkFile, PlanError> {
        NetworkFile::from_tree("g.graphml", &tree("g.graphml", text)?, LinkDefaults::default())
    }

    fn refused(from: &str, to: &str) -> String {
        assert!(GRAPH.contains(from), "{from}");
        parse(&GRAPH.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn nodes_and_edges_are_a_network() {
        let network = parse(GRAPH).unwrap();
        assert_eq!((network.wiring.hosts, network.wiring.switches), (vec!["a".to_string(), "b".into()], vec!["s".to_string()]));
        let ends: Vec<(u32, u32, u64)> =
            network.wiring.cables.iter().map(|cable| (cable.a, cable.b, cable.speed.bits_per_second / 1_000_000_000)).collect();
        assert_eq!(ends, [(0, 2, 100), (2, 1, 40)]);
        assert!(network.switches[0].aggregates);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            refused("100Gb/s", "fast"),
            "g.graphml:16: links[0].rate = \"fast\": expected bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\""
        );
        assert_eq!(refused(">host<", ">printer<"), "g.graphml:10: kind of node a = printer: expected host or switch");
        assert_eq!(refused("target=\"b\"", "target=\"c\""), "g.graphml:17: target of an edge = c: expected the id of a node");
        assert_eq!(refused(">True<", ">perhaps<"), "g.graphml:14: aggregates = perhaps: expected a boolean");
        assert_eq!(refused("key=\"d1\"", "key=\"d9\""), "g.graphml:9: key of a datum = d9: expected the id of a key");
        assert!(refused("</graph>", "</grape>").starts_with("g.graphml:18: not XML: "));
        assert!(parse("<graphml/>").unwrap_err().to_string().contains("expected GraphML"));
    }

    #[test]
    fn graphs_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            if let Some(Err(error)) = std::str::from_utf8(bytes).ok().map(parse) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
}
