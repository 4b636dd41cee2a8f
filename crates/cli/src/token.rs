//! `fanin token`: keys for a switch, and tokens that admit ranks.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use fanin_core::units::time_or_seconds;
use fanin_trust::token::{PrivateKey, PublicKey, is_name, key_of, read, time_text};
use fanin_trust::{KeyFile, Ranks, Rights, Secret};

/// How long a token is good where nothing is said: a day.
const LASTS: &str = "86400s";
/// The longest, in s: ten years.
const LASTS_S_MAX: u64 = 10 * 366 * 86_400;

/// Make keys and tokens for a switch that is started with `--keys`.
///
/// A key has two halves: the private one makes tokens, and the switch checks them with the public one. A token names a tenant, its jobs, the ranks that
/// may be taken, and until when.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

const EXAMPLES: &str = "\
Examples:
  fanin token new --name 2026-11 --private issuer.key >> keys.toml     a key, and its table for the switch
  fanin switch --listen 0.0.0.0:7700 --keys keys.toml
  export FANIN_TOKEN=$(fanin token issue --private issuer.key --name 2026-11 --tenant red --job 'train-*' --lasts 12h)
  (umask 077; fanin token secret > fabric.key)                        what packets of a fabric are made with
  fanin token show --keys keys.toml \"$FANIN_TOKEN\"

More in docs/security.md.";

#[derive(Subcommand, Debug)]
enum TokenCommand {
    /// Make a key: its private half goes into a file, and the table for the switch's key file to standard output.
    New {
        /// The key's name, which its tokens carry.
        #[arg(long)]
        name: String,
        /// Where the private half goes: a new file that only its owner can read.
        #[arg(long, value_name = "FILE")]
        private: PathBuf,
        /// Tenants that the key speaks for, with commas; any without.
        #[arg(long, value_delimiter = ',', value_name = "TENANT,...")]
        tenants: Vec<String>,
    },
    /// Make the secret of a fabric, for `--fabric-key` of its switches and its manager: 64 hexadecimal digits to standard output.
    Secret,
    /// Make a token.
    Issue {
        /// The private half of the key.
        #[arg(long, value_name = "FILE")]
        private: PathBuf,
        /// The key's name.
        #[arg(long)]
        name: String,
        /// Whose jobs these are.
        #[arg(long)]
        tenant: String,
        /// A job's name, with `*` for anything; may be given several times.
        #[arg(long = "job", required = true, value_name = "PATTERN")]
        jobs: Vec<String>,
        /// Ranks that may be taken, as 3, 0-7 or 0,4-5; all without.
        #[arg(long)]
        ranks: Option<String>,
        /// How long the token is good for joining, as 600s or 12h.
        #[arg(long, default_value = LASTS, value_name = "TIME")]
        lasts: String,
    },
    /// Say what a token gives a right to, and whether a switch with these keys takes it.
    Show {
        /// The switch's key file.
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
        /// The token, or `-` for standard input.
        token: String,
    },
}

/// Makes keys and tokens, or shows one.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn run(args: &TokenArgs) -> Result<()> {
    match &args.command {
        TokenCommand::New { name, private, tenants } => new(name, private, tenants),
        TokenCommand::Issue { private, name, tenant, jobs, ranks, lasts } => {
            let ranks = ranks.as_ref().map(|ranks| ranks.parse::<Ranks>()).transpose().map_err(|error| anyhow!("--{error}"))?;
            let made_s = now_s();
            let until_s = made_s + seconds(lasts)?;
            let rights = Rights { tenant: tenant.clone(), jobs: jobs.clone(), ranks, made_s, until_s };
            println!("{}", private_key(private)?.sign(name, &rights)?);
            Ok(())
        }
        TokenCommand::Secret => {
            println!("{}", String::from(Secret::random()?));
            Ok(())
        }
        TokenCommand::Show { keys, token } => show(keys, token),
    }
}

fn new(name: &str, private: &Path, tenants: &[String]) -> Result<()> {
    if let Some(wrong) = [name].into_iter().chain(tenants.iter().map(String::as_str)).find(|text| !is_name(text)) {
        bail!("{wrong:?}: expected a name of letters, digits and `._-`");
    }
    let key = PrivateKey::random().map_err(|error| anyhow!(error))?;
    let public = key.public().map_err(|error| anyhow!(error))?;
    let mut options = OpenOptions::new();
    // An old key is not lost by mistake.
    let mut file = options.write(true).create_new(true).mode(0o600).open(private).with_context(|| private.display().to_string())?;
    writeln!(file, "{}", key.text())?;
    println!("[[key]]\nname = \"{name}\"\npublic = \"{public}\"");
    if !tenants.is_empty() {
        println!("tenants = {tenants:?}");
    }
    Ok(())
}

fn show(keys: &Path, token: &str) -> Result<()> {
    let token = if token == "-" { std::io::read_to_string(std::io::stdin())? } else { token.to_owned() };
    let token = token.trim();
    let text = fs::read_to_string(keys).with_context(|| keys.display().to_string())?;
    let file = KeyFile::parse(&text).with_context(|| keys.display().to_string())?;
    let key = key_of(token)?;
    let public: Option<&PublicKey> = file.public(&key);
    let Some(public) = public else { bail!("it was signed with key {key:?}, which {} does not have", keys.display()) };
    let Rights { tenant, jobs, ranks, made_s, until_s } = read(token, (&key, public))?;
    println!("key     {key}\ntenant  {tenant}\njobs    {}", jobs.join(", "));
    println!("ranks   {}", ranks.map_or_else(|| "all".into(), |ranks| ranks.to_string()));
    println!("made    {}\nuntil   {}", time_text(made_s), time_text(until_s));
    file.verify(token, now_s())?;
    Ok(())
}

fn private_key(path: &Path) -> Result<PrivateKey> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    PrivateKey::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn seconds(text: &str) -> Result<i64> {
    // Hours and days are what tokens last; the units of other times end with seconds.
    let (number, factor) = match text.strip_suffix('h').map(|number| (number, 3_600)).or(text.strip_suffix('d').map(|days| (days, 86_400)))
    {
        Some((number, factor)) => (number.parse::<u64>().ok(), factor),
        None => (time_or_seconds(text).map(|time| time.as_ps() / 1_000_000_000_000), 1),
    };
    let seconds = number.and_then(|number| number.checked_mul(factor)).filter(|seconds| (1..=LASTS_S_MAX).contains(seconds));
    seconds
        .map(|seconds| seconds as i64)
        .ok_or_else(|| anyhow!("--lasts {text}: expected a time from 1s to ten years, as 600s, 12h or 30d"))
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
