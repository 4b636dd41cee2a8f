//! Who takes part and where ranks meet: settings in place of the environment's variables, and with the same meaning.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

use fanin_comm::{Config, Notices, VARIABLES};

use crate::errors::{Failure, Status, guarded};

/// Settings of a communicator, from `fanin_settings_new` to `fanin_settings_free`.
pub struct Settings {
    /// By the variable that each stands for.
    given: BTreeMap<&'static str, String>,
    notices: Option<Notices>,
}

/// What is called for each notice, such as why nothing moves: with its text, which is the library's and stays until it returns, and the context that
/// was given along. It may be called in any thread.
pub type Notice = Option<extern "C" fn(text: *const c_char, context: *mut c_void)>;

/// A pointer that belongs to the program, which has said that threads may use it.
struct Context(*mut c_void);

// SAFETY: the library only hands it on; `fanin_settings_notices` asks its callers that threads may use what it points to.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Settings {
    /// The configuration, with the environment's variables behind the settings where `environment`.
    pub(crate) fn config(&self, environment: bool) -> Result<Config, Failure> {
        let config = Config::from_settings(&self.given, environment).map_err(|error| Failure::setting(error.to_string()))?;
        let notices = self.notices.clone().unwrap_or_else(|| config.notices.clone());
        Ok(Config { notices, ..config })
    }
}

/// A text from C.
///
/// # Safety
/// It ends with a zero byte, where it is not NULL, and stays as it is meanwhile.
pub(crate) unsafe fn text<'a>(what: &str, from: *const c_char) -> Result<&'a str, Failure> {
    if from.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: as this function's.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is no UTF-8: {}", text.to_string_lossy())))
}

/// Settings of which none is given.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_settings_new() -> *mut Settings {
    Box::into_raw(Box::new(Settings { given: BTreeMap::new(), notices: None }))
}

/// Frees settings; NULL does nothing.
///
/// # Safety
/// They come from `fanin_settings_new`, and are not used after that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_settings_free(settings: *mut Settings) {
    if !settings.is_null() {
        // SAFETY: as this function's.
        drop(unsafe { Box::from_raw(settings) });
    }
}

/// Gives a setting: `name` is that of a variable of the environment without its prefix, in small letters ("rank" for FANIN_RANK); what each means
/// and takes is in docs/communicator.md. The value is looked at when the communicator is made.
///
/// # Safety
/// The settings are the caller's alone meanwhile; both texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_settings_set(settings: *mut Settings, name: *const c_char, value: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let settings = unsafe { settings.as_mut() }.ok_or_else(|| Failure::argument("settings is NULL"))?;
        // SAFETY: as this function's.
        let (name, value) = unsafe { (text("name", name)?, text("value", value)?) };
        let known = || VARIABLES.iter().map(|(variable, _)| *variable);
        let key = |variable: &str| variable.strip_prefix("FANIN_").unwrap_or(variable).to_lowercase();
        let variable = known().find(|variable| key(variable) == name).ok_or_else(|| {
            let keys: Vec<String> = known().map(key).collect();
            Failure::argument(format!("name = {name:?}: expected one of {}", keys.join(", ")))
        })?;
        settings.given.insert(variable, value.to_owned());
        Ok(())
    })
}

/// Has `notice` called for each notice, which goes to standard error otherwise; NULL keeps all of them quiet.
///
/// # Safety
/// The settings are the caller's alone meanwhile. Any thread may use `context`, for as long as there is a communicator of these settings or a group
/// of one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_settings_notices(settings: *mut Settings, notice: Notice, context: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let settings = unsafe { settings.as_mut() }.ok_or_else(|| Failure::argument("settings is NULL"))?;
        let context = Arc::new(Context(context));
        settings.notices = Some(Notices::to(move |words| {
            let Context(context) = *context;
            if let (Some(notice), Ok(words)) = (notice, CString::new(words.to_string())) {
                notice(words.as_ptr(), context);
            }
        }));
        Ok(())
    })
}

/// Whether C says yes.
pub(crate) fn is_yes(flag: c_int) -> bool {
    flag != 0
}
