//! Fanin with a system more: everything that the program does, it does with `racks`, too.
#![forbid(unsafe_code)]

mod racks;

fn main() -> std::process::ExitCode {
    fanin_systems::register::<racks::Racks>();
    fanin_cli::run()
}
