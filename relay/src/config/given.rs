//! What was given for each setting, and where: the layers laid over each other.

use super::Error;
use super::catalog::{self, Form, Setting};
use super::refused;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a value came from. Displays as the name that its giver used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The command line.
    Flag(&'static str),
    /// The environment.
    Env(&'static str),
    /// The file.
    File {
        /// The file's path as it was given.
        path: Arc<PathBuf>,
        /// The line, from 1.
        line: usize,
        /// The dotted key.
        key: String,
    },
    /// Nothing was given.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) | Self::Default(flag) => write!(f, "--{flag}"),
            Self::Env(name) => f.write_str(name),
            Self::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
        }
    }
}

/// The texts given for one setting in one place: exactly one, unless the setting is a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Where.
    pub(super) origin: Origin,
    /// What.
    pub(super) texts: Vec<String>,
}

impl Given {
    /// A value from a place where a list is one text with commas.
    pub(super) fn split(origin: Origin, form: Form, texts: impl IntoIterator<Item = String>) -> Self {
        let texts = match form {
            Form::Texts | Form::Numbers | Form::Peers => texts
                .into_iter()
                .flat_map(|text| text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>())
                .filter(|part| !part.is_empty())
                .collect(),
            Form::Text | Form::Number | Form::Bool | Form::Switch => texts.into_iter().collect(),
        };
        Self { origin, texts }
    }

    /// An error about this value: what it is not, or what is wrong with it, and the remedy.
    pub(super) fn error(&self, what: impl fmt::Display) -> Error {
        Error::new(format!("{}: {what}", self.origin))
    }
}

/// The settings of one layer, or of several merged ones, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer(BTreeMap<&'static str, Given>);

impl Layer {
    /// Adds what was given for `setting`.
    pub(super) fn insert(&mut self, setting: &'static Setting, given: Given) {
        self.0.insert(setting.key, given);
    }

    /// This layer with `over` laid over it.
    pub(super) fn under(mut self, over: Self) -> Self {
        self.0.extend(over.0);
        self
    }

    /// What was given for `setting`.
    pub(super) fn get(&self, setting: &'static Setting) -> Option<&Given> {
        self.0.get(setting.key)
    }

    /// The same, or the setting's default as if it had been given; `None` when the default is words.
    pub(super) fn or_default(&self, setting: &'static Setting) -> Option<Given> {
        self.get(setting).cloned().or_else(|| match setting.default {
            catalog::Unset::Value(text) => {
                Some(Given { origin: Origin::Default(setting.flag), texts: vec![text.to_owned()] })
            }
            catalog::Unset::Words(_) => None,
        })
    }
}

/// The layer of the environment. An empty variable counts as unset.
///
/// # Errors
/// A variable that is refused by name, or that is not text.
pub(super) fn environment(variables: &HashMap<OsString, OsString>) -> Result<Layer, Error> {
    let read = |name: &'static str| -> Result<Option<String>, Error> {
        match variables.get(&OsString::from(name)) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => match value.to_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(Error::new(format!("{name}: the value is not UTF-8; set it again"))),
            },
        }
    };
    for entry in refused::ALL {
        if let Some(name) = entry.env
            && variables.get(&OsString::from(name)).is_some_and(|value| !value.is_empty())
        {
            return Err(Error::new(entry.message(name)));
        }
    }
    let mut layer = Layer::default();
    for setting in catalog::ALL {
        if let Some(text) = read(setting.env)? {
            layer.insert(setting, Given::split(Origin::Env(setting.env), setting.form, [text]));
        }
    }
    Ok(layer)
}
