//! Fanin with background traffic and noise more: plans that this program runs may say `pattern = "web-search"` and `distribution = "daemon"`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    own_traffic::register();
    fanin_cli::run()
}
