//! Settings of a switch: each has one name, one reader and one text of what is expected, on the command line and in a file.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use fanin_daemon::DaemonConfig;
use fanin_plan::units::{bytes_of, bytes_text, microseconds_of};
use fanin_trust::Protection;

use super::SwitchArgs;
use super::doors::Doors;
use fanin_terminal::log::LogFormat;

/// Where a switch listens by default: processes of this machine find it there, and nobody else.
const LISTEN: &str = "127.0.0.1:7700";

/// A day, in ms.
const TIME_MS_MAX: u64 = 24 * 3_600_000;

/// All settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    config: DaemonConfig,
    /// What is done for packets, where that was said.
    packets: Option<Protection>,
    /// Everybody who reaches the switch may join.
    open: bool,
    /// How control connections come in.
    doors: Doors,
    pub log_format: LogFormat,
}

/// One setting.
struct Setting {
    /// Its name in files; on the command line with dashes.
    name: &'static str,
    /// What a value looks like.
    expected: &'static str,
    set: fn(&mut Settings, &str) -> Option<()>,
    get: fn(&Settings) -> Option<String>,
    argument: fn(&SwitchArgs) -> Option<&String>,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "listen",
        expected: "an IP address and a TCP port, as 0.0.0.0:7700 or [::]:7700",
        set: |settings, text| text.parse().ok().map(|address| settings.config.listen = address),
        get: |settings| quoted(settings.config.listen),
        argument: |args| args.listen.as_ref(),
    },
    Setting {
        name: "http",
        expected: "an IP address and a TCP port, as 127.0.0.1:9470",
        set: |settings, text| text.parse::<SocketAddr>().ok().map(|address| settings.config.http = Some(address)),
        get: |settings| quoted(settings.config.http?),
        argument: |args| args.http.as_ref(),
    },
    Setting {
        name: "data_ports",
        expected: "the first and the last UDP port, as 7000-7999",
        set: |settings, text| ports(text).map(|range| settings.config.data_ports = Some(range)),
        get: |settings| {
            let range = settings.config.data_ports.as_ref()?;
            quoted(format_args!("{}-{}", range.start(), range.end()))
        },
        argument: |args| args.data_ports.as_ref(),
    },
    Setting {
        name: "keys",
        expected: "a file of keys, as `fanin token new` makes them",
        set: |settings, text| (!text.is_empty()).then(|| settings.config.keys = Some(text.into())),
        get: |settings| quoted(settings.config.keys.as_ref()?.display()),
        argument: |args| args.keys.as_ref(),
    },
    Setting {
        name: "open",
        expected: "true or false",
        set: |settings, text| text.parse().ok().map(|open| settings.open = open),
        get: |settings| Some(settings.open.to_string()),
        argument: |args| args.open.as_ref(),
    },
    Setting {
        name: "tls_cert",
        expected: "a file of a certificate (PEM), as `fanin tls new` makes it",
        set: |settings, text| (!text.is_empty()).then(|| settings.doors.certificate = Some(text.into())),
        get: |settings| quoted(settings.doors.certificate.as_ref()?.display()),
        argument: |args| args.tls.tls_cert.as_ref(),
    },
    Setting {
        name: "tls_key",
        expected: "a file of the certificate's private key (PEM)",
        set: |settings, text| (!text.is_empty()).then(|| settings.doors.key = Some(text.into())),
        get: |settings| quoted(settings.doors.key.as_ref()?.display()),
        argument: |args| args.tls.tls_key.as_ref(),
    },
    Setting {
        name: "tls_clients",
        expected: "a file of a CA's certificates (PEM), or sha256:FINGERPRINT of one certificate",
        set: |settings, text| text.parse().ok().map(|clients| settings.doors.clients = Some(clients)),
        get: |settings| quoted(settings.doors.clients.as_ref()?),
        argument: |args| args.tls.tls_clients.as_ref(),
    },
    Setting {
        name: "control",
        expected: "tls or plain",
        set: |settings, text| text.parse().ok().map(|control| settings.doors.control = Some(control)),
        get: |settings| quoted(settings.doors.control?.name()),
        argument: |args| args.tls.control.as_ref(),
    },
    Setting {
        name: "packets",
        expected: "none, mac or seal",
        set: |settings, text| text.parse().ok().map(|packets| settings.packets = Some(packets)),
        get: |settings| quoted(settings.protection()),
        argument: |args| args.packets.as_ref(),
    },
    Setting {
        name: "jobs_max",
        expected: "a number from 1 to 60000",
        set: |settings, text| number(text, 60_000).map(|count| settings.config.jobs.jobs_max = count),
        get: |settings| Some(settings.config.jobs.jobs_max.to_string()),
        argument: |args| args.jobs_max.as_ref(),
    },
    Setting {
        name: "connections_max",
        expected: "a number from 1 to 1000000",
        set: |settings, text| number(text, 1_000_000).map(|count| settings.config.jobs.connections_max = count),
        get: |settings| Some(settings.config.jobs.connections_max.to_string()),
        argument: |args| args.connections_max.as_ref(),
    },
    Setting {
        name: "memory_max",
        expected: "a size of at least 1MiB, as 512MiB or 4GiB",
        set: |settings, text| {
            settings.config.jobs.memory_bytes_max = bytes_of(text).filter(|bytes| *bytes >= 1 << 20)?;
            Some(())
        },
        get: |settings| quoted(bytes_text(settings.config.jobs.memory_bytes_max).replace(' ', "")),
        argument: |args| args.memory_max.as_ref(),
    },
    Setting {
        name: "patience_max",
        expected: "a time from 1ms to 86400s, as 60s",
        set: |settings, text| milliseconds(text).filter(|ms| *ms > 0).map(|ms| settings.config.jobs.patience_ms_max = ms),
        get: |settings| quoted(time_text(settings.config.jobs.patience_ms_max)),
        argument: |args| args.patience_max.as_ref(),
    },
    Setting {
        name: "drain_timeout",
        expected: "a time from 0s to 86400s, as 30s",
        set: |settings, text| milliseconds(text).map(|ms| settings.config.jobs.drain_ms = ms),
        get: |settings| quoted(time_text(settings.config.jobs.drain_ms)),
        argument: |args| args.drain_timeout.as_ref(),
    },
    Setting {
        name: "log_format",
        expected: "text or json",
        set: |settings, text| {
            settings.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return None,
            };
            Some(())
        },
        get: |settings| quoted(if settings.log_format == LogFormat::Json { "json" } else { "text" }),
        argument: |args| args.log_format.as_ref(),
    },
];

fn quoted(value: impl fmt::Display) -> Option<String> {
    Some(format!("\"{value}\""))
}

fn number(text: &str, most: usize) -> Option<usize> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

fn milliseconds(text: &str) -> Option<u64> {
    let ms = microseconds_of(text)? / 1e3;
    (ms.fract() == 0.0 && ms <= TIME_MS_MAX as f64).then_some(ms as u64)
}

fn time_text(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

impl Settings {
    /// Defaults, then the file, then the command line.
    ///
    /// # Errors
    /// The first setting that is wrong, with its value and what is expected.
    pub fn read(args: &SwitchArgs) -> Result<Self, String> {
        let mut settings = Settings::default();
        if let Some(path) = &args.config {
            let name = path.display();
            let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
            settings.read_file(&text).map_err(|error| format!("{name}: {error}"))?;
        }
        for setting in SETTINGS {
            if let Some(value) = (setting.argument)(args) {
                let wrong = || format!("--{} {value}: expected {}", setting.name.replace('_', "-"), setting.expected);
                (setting.set)(&mut settings, value).ok_or_else(wrong)?;
            }
        }
        Ok(settings)
    }

    fn read_file(&mut self, text: &str) -> Result<(), String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?;
        for (name, value) in &table {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
                return Err(format!("there is no setting {name}; there are {}", known.join(", ")));
            };
            let text = match value {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (setting.set)(self, &text).ok_or_else(|| format!("{name} = {value}: expected {}", setting.expected))?;
        }
        Ok(())
    }

    /// What the service is started with.
    pub fn daemon(&self) -> DaemonConfig {
        DaemonConfig { packets: self.protection(), tls: self.doors.tls(), ..self.config.clone() }
    }

    /// Packets of other machines are sealed, unless it is said otherwise: who can send here need not be trusted, and a tag without sealing takes longer
    /// (docs/security.md). Programs in the kernel cannot check tags.
    fn protection(&self) -> Protection {
        let here = self.config.listen.ip().to_canonical().is_loopback() || !self.config.xdp.is_empty();
        self.packets.unwrap_or(if here { Protection::None } else { Protection::Seal })
    }

    /// Whether it was said who may join, where others than processes of this machine can ask.
    ///
    /// # Errors
    /// What is expected.
    pub fn check_who_may_join(&self) -> Result<(), String> {
        self.doors.check()?;
        self.doors.check_tokens(self.config.listen, self.config.keys.is_some())?;
        let asked_here = self.config.listen.ip().to_canonical().is_loopback();
        match (&self.config.keys, self.open) {
            (Some(_), true) => Err("--open with --keys: expected one of them; with keys, only ranks with a token may join".into()),
            (None, false) if !asked_here => Err(format!(
                "--listen {}: other machines can ask to join there: say who may, by --keys FILE (`fanin token new` makes keys), or --open for \
                 everybody who reaches the port",
                self.config.listen
            )),
            _ => Ok(()),
        }
    }

    /// What is done for packets, where that was said.
    pub fn packets(&self) -> Option<Protection> {
        self.packets
    }

    /// How control connections come in.
    pub fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Lets a program in the kernel sum at these devices: a list with commas. Not a setting of files, since what may be in a file may be on any
    /// machine, and this needs a program that was built with it.
    ///
    /// # Errors
    /// What is expected.
    pub fn in_kernel(&mut self, list: &str) -> Result<(), String> {
        let devices: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
        let are_names = devices.iter().enumerate().all(|(at, name)| !name.is_empty() && !devices[..at].contains(name));
        if !are_names {
            return Err(format!("--xdp {list}: expected network devices, each once, as eth1 or eth1,eth2"));
        }
        self.config.in_kernel(devices);
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Self {
        let listen = LISTEN.parse().expect("an address");
        Settings { config: DaemonConfig::new(listen), packets: None, open: false, doors: Doors::default(), log_format: LogFormat::Text }
    }
}

/// As a config file that says all there is to say.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in SETTINGS {
            match (setting.get)(self) {
                Some(value) => writeln!(f, "{} = {value}", setting.name)?,
                None => writeln!(f, "# {} is not set: {}", setting.name, setting.expected)?,
            }
        }
        Ok(())
    }
}
