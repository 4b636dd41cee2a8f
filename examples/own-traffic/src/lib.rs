//! Background traffic and noise that Fanin does not have: messages of a web search, and a daemon that keeps hosts from sending.
#![forbid(unsafe_code)]

mod daemon;
mod web_search;

pub use daemon::Daemon;
pub use web_search::WebSearch;

/// Makes both known.
pub fn register() {
    fanin_plan::own::register_traffic::<WebSearch>();
    fanin_plan::own::register_noise::<Daemon>();
}
