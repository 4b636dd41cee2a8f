//! `fanin tls`: certificates for the control connections of a cluster.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use chrono::Utc;
use clap::{Args, Subcommand, ValueEnum};
use fanin_channel::issue::{self, Issued, Purpose};
use fanin_channel::{Fingerprint, show};
use fanin_trust::token::time_text;

/// For how long certificates are good where nothing is said, in days.
const DAYS: u32 = 365;
/// The same of a CA.
const CA_DAYS: u32 = 3_650;

/// Make certificates for control connections (TLS), or show one.
///
/// A certificate says who a switch is; its CA has signed it, and is what ranks know it by. Whoever has the CA's key can make switches that ranks take for
/// theirs: it stays where certificates are made.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

const EXAMPLES: &str = "\
Examples:
  fanin tls new tls --name agg --name 10.0.0.2           a CA, and a certificate of the switch that is reached by these names
  fanin switch --listen 0.0.0.0:7700 --keys keys.toml --tls-cert tls/agg.pem --tls-key tls/agg.key
  export FANIN_SWITCH=agg:7700 FANIN_TLS=tls/ca.pem      at ranks, which need ca.pem alone
  fanin tls issue tls --name worker3 --for rank          for a switch that asks ranks for certificates (--tls-clients)
  fanin tls show tls/agg.pem

More in docs/security.md.";

#[derive(Subcommand, Debug)]
enum TlsCommand {
    /// Make a CA and a switch's certificate in a folder.
    New(NewArgs),
    /// Make one more certificate of the CA in a folder.
    Issue(IssueArgs),
    /// Say what is in a file of certificates: fingerprint, names, CA, and until when it is good.
    Show {
        /// The file (PEM).
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
struct NewArgs {
    /// The folder, which must not have a CA yet.
    folder: PathBuf,
    /// A host name or an IP address by which ranks go to the switch; may be given several times.
    #[arg(long = "name", required = true, value_name = "HOST")]
    names: Vec<String>,
    /// For how many days the certificate is good.
    #[arg(long, default_value_t = DAYS)]
    days: u32,
}

#[derive(Args, Debug)]
struct IssueArgs {
    /// The folder of the CA.
    folder: PathBuf,
    /// A host name or an IP address; may be given several times. The first one also names the files.
    #[arg(long = "name", required = true, value_name = "HOST")]
    names: Vec<String>,
    /// What the certificate is for.
    #[arg(long = "for", value_enum, value_name = "WHOM", default_value_t = Whom::Switch)]
    whom: Whom,
    /// For how many days it is good.
    #[arg(long, default_value_t = DAYS)]
    days: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Whom {
    /// To be a switch or a manager, or a rank that may run a switch.
    Switch,
    /// To be a rank: nobody takes it for a switch.
    Rank,
}

/// Makes certificates, or shows some.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn run(args: &TlsArgs) -> Result<()> {
    match &args.command {
        TlsCommand::New(new) => {
            fs::create_dir_all(&new.folder).with_context(|| new.folder.display().to_string())?;
            let subject = format!("Fanin CA of {}", new.names[0]);
            let ca = issue::authority(&subject, Utc::now(), CA_DAYS).map_err(|error| anyhow!(error))?;
            // Before anything is written: a name that is wrong leaves no half of it.
            let switch = certificate(&ca, &new.names, Purpose::Switch, new.days)?;
            write(&new.folder, "ca", &ca)?;
            let (certificate, key) = write(&new.folder, &new.names[0], &switch)?;
            println!("switch  --tls-cert {} --tls-key {}", certificate.display(), key.display());
            println!(
                "ranks   FANIN_TLS={}   (or {})",
                new.folder.join("ca.pem").display(),
                Fingerprint::of_file(&certificate).map_err(|error| anyhow!(error))?
            );
            println!("keep    {} where certificates are made, and nowhere else", new.folder.join("ca.key").display());
            Ok(())
        }
        TlsCommand::Issue(new) => {
            let read = |name: &str| {
                let path = new.folder.join(name);
                fs::read_to_string(&path).with_context(|| path.display().to_string())
            };
            let ca = Issued { certificate: read("ca.pem")?, key: read("ca.key")? };
            let purpose = if new.whom == Whom::Switch { Purpose::Switch } else { Purpose::Rank };
            let (certificate, key) = write(&new.folder, &new.names[0], &certificate(&ca, &new.names, purpose, new.days)?)?;
            match new.whom {
                Whom::Switch => println!("switch  --tls-cert {} --tls-key {}", certificate.display(), key.display()),
                Whom::Rank => println!("rank    FANIN_TLS_CERT={} FANIN_TLS_KEY={}", certificate.display(), key.display()),
            }
            Ok(())
        }
        TlsCommand::Show { file } => {
            for shown in show::file(file).map_err(|error| anyhow!(error))? {
                println!("certificate  {}", shown.fingerprint);
                println!("subject      {}{}", shown.subject, if shown.is_ca { " (a CA)" } else { "" });
                println!("names        {}", if shown.names.is_empty() { "none".to_owned() } else { shown.names.join(" ") });
                println!("signed by    {}", shown.issuer);
                println!("good         {} to {}", time_text(shown.from_s), time_text(shown.until_s));
            }
            Ok(())
        }
    }
}

fn certificate(ca: &Issued, names: &[String], purpose: Purpose, days: u32) -> Result<Issued> {
    issue::certificate(ca, names, purpose, Utc::now(), days).map_err(|error| anyhow!(error))
}

/// Writes both files, of which only the owner can read the key. Nothing that is there is lost by mistake.
fn write(folder: &Path, name: &str, issued: &Issued) -> Result<(PathBuf, PathBuf)> {
    // An address of IPv6 has what some file systems have no place for.
    let name = name.replace([':', '/'], "_");
    if name.starts_with('.') {
        bail!("--name {name}: expected a host name or an IP address");
    }
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    for (path, text, mode) in [(&key, &issued.key, 0o600), (&certificate, &issued.certificate, 0o644)] {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).with_context(|| path.display().to_string())?;
        file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    }
    Ok((certificate, key))
}
