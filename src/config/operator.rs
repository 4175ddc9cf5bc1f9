//! The commands of the operator that work on the store: keys, usage, the schema.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap, value_parser};

use forebay_core::request::{MAX_SALT_BYTES, Priority, Weight};
use forebay_store::Grouping;
use forebay_store::keys::{NewKey, Role, Roles, day_of};

/// `forebay keys …`
#[derive(Clone, Debug, PartialEq)]
pub enum KeysArgs {
    Create {
        key: Box<NewKey>,
        /// From now on.
        expires_in: Option<Duration>,
        json: bool,
    },
    List {
        json: bool,
    },
    Revoke {
        id: String,
    },
    Rotate {
        id: String,
        /// The old key is good for so long.
        grace: Duration,
        json: bool,
    },
}

/// `forebay usage report`
#[derive(Clone, Debug, PartialEq)]
pub struct UsageArgs {
    /// Since 1970, both included; `None` is this month, and today.
    pub from: Option<i64>,
    pub to: Option<i64>,
    pub key: Option<String>,
    pub by: Grouping,
    pub json: bool,
}

/// `forebay db …`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbArgs {
    Migrate,
    Check,
}

/// With `where_to`, the flags that say where the store is, on each.
pub fn commands(where_to: impl Fn() -> Vec<Arg>) -> [Clap; 3] {
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("JSON instead of a table");
    let id = || Arg::new("id").required(true).value_name("ID").help("Such as key_0123456789abcdef");
    let create = Clap::new("create").about("Make a key and print it: the only time that it is shown").args(limits());
    let list = Clap::new("list").about("All keys with their limits; never the keys themselves");
    let revoke = Clap::new("revoke").about("End a key; servers hear of it within a second").arg(id());
    let rotate = Clap::new("rotate").about("Give a key another text").arg(id()).arg(
        Arg::new("grace")
            .long("grace")
            .value_name("DURATION")
            .value_parser(span)
            .default_value("0s")
            .help("How long the old text stays good, such as 24h"),
    );
    let keys = Clap::new("keys")
        .about("API keys: make, list, end and exchange them; a server may be running")
        .subcommand_required(true)
        .subcommand(create.arg(json()).args(where_to()))
        .subcommand(list.arg(json()).args(where_to()))
        .subcommand(revoke.args(where_to()))
        .subcommand(rotate.arg(json()).args(where_to()));
    let report = Clap::new("report")
        .about("Requests and tokens of each key")
        .arg(day("from", "First day, such as 2026-01-31 [default: the first of this month]"))
        .arg(day("to", "Last day [default: today]"))
        .arg(Arg::new("key").long("key").value_name("ID").help("Of this key only"))
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("COLUMNS")
                .value_delimiter(',')
                .value_parser(["key", "day", "route", "model"])
                .default_value("key")
                .help("What is told apart: key, day, route, model"),
        )
        .arg(json())
        .args(where_to());
    let usage = Clap::new("usage").about("What keys have used").subcommand_required(true).subcommand(report);
    let migrate = Clap::new("migrate").about("Bring the store's schema up to date, as a server does when it starts");
    let check =
        Clap::new("check").about("Whether the store can be opened and its schema is this version's; changes nothing");
    let db = Clap::new("db")
        .about("The store's schema")
        .subcommand_required(true)
        .subcommand(migrate.args(where_to()))
        .subcommand(check.args(where_to()));
    [keys, usage, db]
}

fn limits() -> Vec<Arg> {
    let number = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").value_parser(value_parser!(u32).range(1..)).help(help)
    };
    let names: Vec<&str> = Priority::ALL.iter().map(|priority| priority.name()).collect();
    vec![
        Arg::new("name").long("name").value_name("TEXT").required(true).help("Whose it is, for lists and reports"),
        Arg::new("role")
            .long("role")
            .value_name("ROLE")
            .action(ArgAction::Append)
            .value_parser(Role::ALL.map(Role::name))
            .help("inference or admin; may be given twice [default: inference]"),
        number("requests-per-minute", "More are refused with 429 [default: no limit]"),
        number(
            "tokens-per-minute",
            "Prompt and completion together; beyond it the next request waits [default: no limit]",
        ),
        Arg::new("tokens-per-month")
            .long("tokens-per-month")
            .value_name("N")
            .value_parser(value_parser!(u64).range(1..=1 << 62))
            .help("Of a calendar month, in UTC; beyond it 429 insufficient_quota [default: no limit]"),
        number("concurrency", "Requests at once [default: no limit]"),
        Arg::new("priority-ceiling")
            .long("priority-ceiling")
            .value_name("PRIORITY")
            .value_parser(clap::builder::PossibleValuesParser::new(names))
            .help("The most urgent priority that its requests may ask for [default: critical]"),
        Arg::new("weight")
            .long("weight")
            .value_name("N")
            .value_parser(weight)
            .help("In the fair share, from 0.001 to 1000: 2 gets twice as much as 1 [default: 1]"),
        Arg::new("expires")
            .long("expires")
            .value_name("DURATION")
            .value_parser(span)
            .help("Good for so long, such as 90d [default: for ever]"),
        Arg::new("cache-salt")
            .long("cache-salt")
            .value_name("TEXT")
            .value_parser(salt)
            .help("Keys with the same one share the prefix cache; empty shares it with everybody [default: its own]"),
    ]
}

fn day(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("DAY").value_parser(date).help(help)
}

pub fn keys_args(matches: &ArgMatches) -> KeysArgs {
    match matches.subcommand() {
        Some(("create", matches)) => create(matches),
        Some(("revoke", matches)) => KeysArgs::Revoke { id: text(matches, "id").unwrap_or_default() },
        Some(("rotate", matches)) => KeysArgs::Rotate {
            id: text(matches, "id").unwrap_or_default(),
            grace: matches.get_one("grace").copied().unwrap_or_default(),
            json: matches.get_flag("json"),
        },
        Some((_, matches)) => KeysArgs::List { json: matches.get_flag("json") },
        None => KeysArgs::List { json: false },
    }
}

fn create(matches: &ArgMatches) -> KeysArgs {
    let named = matches.get_many::<String>("role").into_iter().flatten().filter_map(|name| Role::from_name(name));
    let named: Vec<Role> = named.collect();
    let plain = NewKey::named(&text(matches, "name").unwrap_or_default());
    let number = |id: &str| matches.get_one::<u32>(id).copied();
    let key = NewKey {
        roles: Roles::new(&named).unwrap_or_else(|| plain.roles.clone()),
        requests_per_minute: number("requests-per-minute"),
        tokens_per_minute: number("tokens-per-minute"),
        tokens_per_month: matches.get_one("tokens-per-month").copied(),
        concurrency: number("concurrency"),
        priority_ceiling: text(matches, "priority-ceiling").and_then(|name| Priority::from_name(&name)),
        weight: matches.get_one("weight").copied().unwrap_or_default(),
        cache_salt: text(matches, "cache-salt"),
        ..plain
    };
    let expires_in = matches.get_one("expires").copied();
    KeysArgs::Create { key: Box::new(key), expires_in, json: matches.get_flag("json") }
}

pub fn usage_args(matches: &ArgMatches) -> UsageArgs {
    let Some((_, matches)) = matches.subcommand() else {
        return UsageArgs { from: None, to: None, key: None, by: Grouping::default(), json: false };
    };
    let by: Vec<&String> = matches.get_many("by").into_iter().flatten().collect();
    let has = |name: &str| by.iter().any(|by| *by == name);
    UsageArgs {
        from: matches.get_one("from").copied(),
        to: matches.get_one("to").copied(),
        key: text(matches, "key"),
        by: Grouping { key: has("key"), day: has("day"), route: has("route"), model: has("model") },
        json: matches.get_flag("json"),
    }
}

pub fn db_args(matches: &ArgMatches) -> DbArgs {
    match matches.subcommand_name() {
        Some("migrate") => DbArgs::Migrate,
        _ => DbArgs::Check,
    }
}

fn text(matches: &ArgMatches, id: &str) -> Option<String> {
    matches.get_one::<String>(id).cloned()
}

/// `90d`, `24h`, `30m`, `10s`.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration such as 90d, 24h, 30m or 10s");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    // A hundred years.
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds <= 36_525 * 86_400).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

fn weight(text: &str) -> Result<Weight, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=1_000.0).contains(number));
    let thousandths = number.map(|number| (number * 1_000.0).round() as u32);
    thousandths.and_then(Weight::from_thousandths).ok_or_else(|| format!("'{text}' is no number from 0.001 to 1000"))
}

/// As requests may have it.
fn salt(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=".contains(&byte);
    match text.len() <= MAX_SALT_BYTES && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("must have at most {MAX_SALT_BYTES} characters of a-z, A-Z, 0-9, _, -, + and =")),
    }
}

/// A day of the Gregorian calendar, as days since 1970.
fn date(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is no day such as 2026-01-31");
    let parts: Vec<i64> = text.split('-').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    let [year, month, day] = parts[..] else { return Err(wrong()) };
    let found = day_of(year, month, day);
    if !(1..=12).contains(&month)
        || !(1970..=9999).contains(&year)
        || forebay_store::keys::date_of(found) != (year, month, day)
    {
        return Err(wrong());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::cli::{Command, parse_from};
    use super::*;

    fn parsed(args: &[&str]) -> Command {
        parse_from(args).expect("it parses").command
    }

    #[test]
    fn keys_have_limits_of_their_own() {
        let args = "keys create --name ci --role admin --role inference --requests-per-minute 60 --tokens-per-minute 9 \
                    --tokens-per-month 8 --concurrency 2 --priority-ceiling low --weight 2.5 --expires 90d --cache-salt x";
        let Command::Keys(args) = parsed(&args.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>()) else {
            panic!("another command")
        };
        let key = NewKey {
            roles: Roles::new(&Role::ALL).unwrap(),
            requests_per_minute: Some(60),
            tokens_per_minute: Some(9),
            tokens_per_month: Some(8),
            concurrency: Some(2),
            priority_ceiling: Some(Priority::Low),
            weight: Weight::from_thousandths(2_500).unwrap(),
            cache_salt: Some("x".into()),
            ..NewKey::named("ci")
        };
        let expires_in = Some(Duration::from_secs(90 * 86_400));
        assert_eq!(*args, KeysArgs::Create { key: Box::new(key), expires_in, json: false });
        for wrong in [
            "--weight 0",
            "--expires 9",
            "--role root",
            "--concurrency 0",
            "--priority-ceiling urgent",
            "--cache-salt a/b",
        ] {
            let args: Vec<&str> = "keys create --name a".split(' ').chain(wrong.split(' ')).collect();
            assert!(parse_from(&args).is_err(), "{wrong}");
        }
        assert!(parse_from(&["keys", "create"]).is_err() && parse_from(&["keys"]).is_err());
    }

    #[test]
    fn the_store_is_named_as_for_a_server() {
        let parsed = parse_from(&["keys", "list", "--store", "sqlite:x.db"]).unwrap();
        assert_eq!(parsed.flags, [("store", "store.url", "sqlite:x.db".to_owned())]);
        assert_eq!(parsed.command, Command::Keys(Box::new(KeysArgs::List { json: false })));
    }

    #[test]
    fn reports_are_of_days_that_there_are() {
        let Command::Usage(args) = parsed(&["usage", "report", "--from", "1970-01-02", "--by", "day,model", "--json"])
        else {
            panic!("another command")
        };
        let by = Grouping { day: true, model: true, ..Grouping::default() };
        assert_eq!(*args, UsageArgs { from: Some(1), to: None, key: None, by, json: true });
        for wrong in ["2026-02-29", "2026-13-01", "yesterday", "2026-1", "2026-01-00"] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
        assert_eq!(date("2024-02-29"), Ok(19_782));
    }
}
