//! The control plane: what a job's configuration makes of tables and multicast groups, as commands for `simple_switch_CLI`. The same
//! configuration makes the state machine that the packets of a program are compared with.

pub mod atp;
pub mod canary;
pub mod netreduce;
pub mod rina;
pub mod switchml;

use std::fmt::{Display, Write};

/// Where packets go that pass once more. No device is behind it: 511 is the port of what is dropped in v1model.
pub const AGAIN_PORT: u16 = 510;

/// Commands, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands {
    text: String,
    /// Nodes of multicast groups are numbered in the order in which they are made.
    nodes: u32,
}

impl Commands {
    /// None yet.
    pub fn new() -> Self {
        Commands::default()
    }

    /// An entry of a table.
    pub fn add(&mut self, table: &str, action: &str, keys: &[&dyn Display], values: &[&dyn Display]) {
        write!(self.text, "table_add {table} {action}").expect("a String takes all text");
        self.words(keys);
        self.text += " =>";
        self.words(values);
        self.text.push('\n');
    }

    /// What a table does where no entry fits.
    pub fn default_action(&mut self, table: &str, action: &str, values: &[&dyn Display]) {
        write!(self.text, "table_set_default {table} {action}").expect("a String takes all text");
        self.words(values);
        self.text.push('\n');
    }

    /// A multicast group: a copy on each of `ports`, and one that passes again where `again`.
    pub fn group(&mut self, number: u64, ports: impl IntoIterator<Item = u16>, again: bool) {
        writeln!(self.text, "mc_mgrp_create {number}").expect("a String takes all text");
        let ports: Vec<String> = ports.into_iter().chain(again.then_some(AGAIN_PORT)).map(|port| port.to_string()).collect();
        if ports.is_empty() {
            return;
        }
        writeln!(self.text, "mc_node_create 0 {}", ports.join(" ")).expect("a String takes all text");
        writeln!(self.text, "mc_node_associate {number} {}", self.nodes).expect("a String takes all text");
        self.nodes += 1;
    }

    /// The text.
    pub fn text(self) -> String {
        self.text
    }

    fn words(&mut self, words: &[&dyn Display]) {
        words.iter().for_each(|word| write!(self.text, " {word}").expect("a String takes all text"));
    }
}

/// The commands that a switch's configuration makes for a program.
///
/// # Errors
/// What is wrong with the configuration.
pub fn commands(program: &str, json: &str) -> Result<String, String> {
    match program {
        "switchml" => {
            let switch: switchml::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            switch.commands().map(Commands::text).map_err(|error| error.to_string())
        }
        "atp" => {
            let switch: atp::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            switch.commands().map(Commands::text).map_err(|error| error.to_string())
        }
        "canary" => {
            let switch: canary::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            switch.commands().map(Commands::text).map_err(|error| error.to_string())
        }
        "rina" => {
            let switch: rina::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            switch.commands().map(Commands::text).map_err(|error| error.to_string())
        }
        "netreduce" => {
            let switch: netreduce::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            switch.commands().map(Commands::text).map_err(|error| error.to_string())
        }
        _ => Err(format!("there is no control plane for {program}: atp, canary, netreduce, rina and switchml have one")),
    }
}
