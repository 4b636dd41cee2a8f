//! The `fanin` program: see the library beside it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    fanin_cli::run()
}
