//! `docs/relay.md` says what the catalog says. To write its tables anew: `UPDATE_DOCS=1 cargo test -p moq-relay reference`.

use crate::config::catalog::{self, Form, Unset};
use crate::config::refused::{self, Refused, Why};
use std::fmt::Write as _;
use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/relay.md");

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn settings() -> String {
    let mut out = String::new();
    let mut section = "";
    for setting in catalog::ALL {
        if setting.section != section {
            section = setting.section;
            write!(out, "### {section}\n\n| flag, variable, key | default | meaning |\n|---|---|---|\n").unwrap();
        }
        let value = match setting.form {
            Form::Text | Form::Number | Form::Bool => format!(" {}", setting.value),
            Form::Switch => format!("[={}]", setting.value),
            Form::Texts | Form::Numbers | Form::Peers => format!(" {},...", setting.value),
        };
        let default = match setting.default {
            Unset::Value(text) => format!("`{text}`"),
            Unset::Words(text) => text.to_owned(),
        };
        writeln!(
            out,
            "| `--{}{value}`<br>`{}`<br>`{}` | {default} | {} |",
            setting.flag,
            setting.env,
            setting.key,
            escaped(setting.help),
        )
        .unwrap();
        if catalog::ALL.iter().rfind(|last| last.section == section).is_some_and(|last| last.key == setting.key) {
            out.push('\n');
        }
    }
    out
}

fn refused() -> String {
    let mut out = String::from("| flag | variable | key | why |\n|---|---|---|---|\n");
    for entry in refused::ALL {
        let Refused { flags, env, key, why } = entry;
        let flags: Vec<_> = flags.iter().map(|flag| format!("`--{flag}`")).collect();
        let code = |name: &Option<&str>| name.map_or_else(String::new, |name| format!("`{name}`"));
        let why = match why {
            Why::Unsupported(why) => (*why).to_owned(),
            Why::Renamed(to) => format!("renamed to `--{}`", to.flag),
            Why::Table(to) => format!("renamed to {to}"),
            Why::Removed(why) => format!("removed from moq-relay itself: {why}"),
        };
        writeln!(out, "| {} | {} | {} | {} |", flags.join(" "), code(env), code(key), escaped(&why)).unwrap();
    }
    out.push('\n');
    out
}

/// The page with what is between the markers of `name` replaced.
fn replaced(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin:?}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end:?}"));
    format!("{before}{begin}\n{text}{end}{after}")
}

#[test]
fn the_reference_says_what_the_catalog_says() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let wanted = replaced(&replaced(&page, "settings", &settings()), "refused", &refused());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(Path::new(PAGE), wanted).unwrap();
    } else {
        assert!(page == wanted, "docs/relay.md is stale: run UPDATE_DOCS=1 cargo test -p moq-relay reference");
    }
}
