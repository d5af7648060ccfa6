//! The command line: `moq-relay [FILE] [flags]`, generated from the catalog.

use super::Error;
use super::catalog::{self, Form, Setting};
use super::given::{Given, Layer, Origin};
use super::refused;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// What a command line says.
#[derive(Debug)]
pub(super) enum Line {
    /// Settings, and the file that has the rest.
    Settings {
        /// The file.
        file: Option<PathBuf>,
        /// The flags.
        layer: Layer,
    },
    /// A question: print the answer.
    Print(String),
}

const FILE: &str = "FILE";

const ABOUT: &str = "A MoQ relay that can be replaced under load";
const LONG_ABOUT: &str = "A MoQ relay that can be replaced under load: run it alone, or under moq-supervise.\n\n\
    A flag goes before its environment variable, the variable before the file, the file before the default.";
const AFTER: &str = "Durations are a number and a unit (500ms, 10s, 2m, 1h 30m); lists are given by repeating the flag or by \
    commas; an empty environment variable counts as unset.\n\n\
    Exit status: 0 after an orderly stop, 2 for a setting that can't be used, 1 for any other failure.";

/// The parser and the help.
pub(super) fn command() -> Command {
    let file = Arg::new(FILE).help("Read settings from this TOML file").value_parser(value_parser!(PathBuf));
    Command::new("moq-relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(AFTER)
        .max_term_width(110)
        .arg(file)
        .args(catalog::ALL.into_iter().map(argument))
}

fn argument(setting: &'static Setting) -> Arg {
    let default = match setting.default {
        catalog::Unset::Value(text) | catalog::Unset::Words(text) => text,
    };
    let summary = setting.help.split_once(". ").map_or_else(|| setting.help.trim_end_matches('.'), |(first, _)| first);
    let arg = Arg::new(setting.key)
        .long(setting.flag)
        .value_name(setting.value)
        .help(format!("{summary} [default: {default}]"))
        .long_help(format!("{}\n[env: {}] [default: {default}]", setting.help, setting.env))
        .help_heading(setting.section);
    match setting.form {
        Form::Text | Form::Number | Form::Bool => arg.action(ArgAction::Set),
        Form::Switch => arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).default_missing_value("true"),
        Form::Texts | Form::Numbers | Form::Peers => arg.action(ArgAction::Append),
    }
}

/// Reads a command line; `arguments` begin with the program's name.
///
/// # Errors
/// A flag that is unknown, refused by name, or lacks its value.
pub(super) fn parse(arguments: Vec<OsString>) -> Result<Line, Error> {
    // Before clap sees them: to it they would be unknown flags, and their values a FILE.
    for argument in arguments.iter().skip(1).take_while(|argument| *argument != "--") {
        let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else { continue };
        let name = flag.split_once('=').map_or(flag, |(name, _)| name);
        if let Some(entry) = refused::flag(name) {
            return Err(Error::new(entry.message(&format!("--{name}"))));
        }
    }
    let mut matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Line::Print(error.to_string()));
        }
        Err(error) => return Err(Error::new(one_line(&error))),
    };
    let mut layer = Layer::default();
    for setting in catalog::ALL {
        if let Some(texts) = matches.remove_many::<String>(setting.key) {
            layer.insert(setting, Given::split(Origin::Flag(setting.flag), setting.form, texts));
        }
    }
    Ok(Line::Settings { file: matches.remove_one(FILE), layer })
}

/// clap's message without its usage text.
fn one_line(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        Some(_) | None => None,
    };
    let argument = context(ContextKind::InvalidArg);
    if let (ErrorKind::UnknownArgument, Some(argument)) = (error.kind(), &argument) {
        return if argument.starts_with('-') {
            let hint = context(ContextKind::SuggestedArg)
                .map_or_else(|| "moq-relay --help lists all".to_owned(), |hint| format!("did you mean {hint}?"));
            format!("{argument} is not a flag of this relay: {hint}")
        } else {
            format!("{argument}: one FILE at most, and flags before or after it; see moq-relay --help")
        };
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!("{}; see moq-relay --help", line.trim_start_matches("error: "))
}
