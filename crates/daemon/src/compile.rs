//! Operators that a job brings along: checked and compiled beside the control loop, one job after another.

use std::sync::{Mutex, PoisonError};
use std::thread;

use fanin_control::{OpenJob, OperatorWish};
use fanin_operator::{CustomOperator, Digest};

/// A job whose operators have been compiled, or why one was not.
pub(crate) struct Compiled {
    pub(crate) open: Box<OpenJob>,
    pub(crate) operators: Result<Vec<CustomOperator>, String>,
}

/// Compiles the operators of a job in a thread of their own, and tells when that is done.
///
/// # Errors
/// The job, where there is no thread for it.
pub(crate) fn start(open: Box<OpenJob>, tell: impl FnOnce(Compiled) + Send + 'static) -> Result<(), String> {
    /// However many jobs come at once, compiling takes one core.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let compile = move || {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let operators = open.operators.iter().map(operator).collect();
        drop(turn);
        tell(Compiled { open, operators });
    };
    let thread = thread::Builder::new().name("fanin-compile".into()).spawn(compile);
    thread.map(drop).map_err(|error| format!("no thread to compile its operators: {error}"))
}

/// One operator, from what rank 0 has sent.
fn operator(wish: &OperatorWish) -> Result<CustomOperator, String> {
    let name = &wish.name;
    let module = wish.bytes().ok_or_else(|| format!("operator `{name}`: module: expected hexadecimal digits, two for each byte"))?;
    let digest = Digest::of(&module).to_string();
    if digest != wish.digest {
        return Err(format!("operator `{name}`: digest = {}: expected {digest}, that of the module which rank 0 has sent", wish.digest));
    }
    CustomOperator::from_wasm(name, &module).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_it_says_is_refused_with_its_name() {
        let module = include_bytes!("../../../examples/operators/extremes.wasm");
        let wish = |module: &str, digest: String| OperatorWish { name: "mine".into(), digest, module: Some(module.into()) };
        let digest = Digest::of(module).to_string();
        let error = |wish: OperatorWish| operator(&wish).unwrap_err();
        assert!(error(wish("0", digest.clone())).contains("operator `mine`: module: expected hexadecimal digits"));
        assert!(error(wish("00", digest.clone())).contains("that of the module which rank 0 has sent"));
        assert!(error(wish("00", Digest::of(&[0]).to_string())).contains("operator `mine`: its module is not valid"));
        assert_eq!(operator(&wish(&OperatorWish::digits(module), digest)).unwrap().layout().element_bytes, 12);
    }
}
