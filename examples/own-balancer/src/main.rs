//! Fanin with a load balancer more: plans that this program runs may say `routing = "reps"`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    fanin_plan::own::register_balancer::<own_balancer::Reps>();
    fanin_cli::run()
}
