//! The file: TOML, every key known by the catalog or refused by name, every message with its line.

use super::Error;
use super::catalog::{self, Form, Setting};
use super::given::{Given, Layer, Origin};
use super::refused;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads the file at `path`.
///
/// # Errors
/// It can't be read, is not TOML, or has a key that is unknown, refused, or of another type.
pub(super) fn read(path: &Path) -> Result<Layer, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(format!("{}: can't read this file ({error}); name a TOML file, or none", path.display()))
    })?;
    parse(path, &text)
}

/// Reads `text`, the content of the file at `path`.
///
/// # Errors
/// As [`read`].
pub(super) fn parse(path: &Path, text: &str) -> Result<Layer, Error> {
    let document = Document { path: Arc::new(path.to_owned()), text };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().replace('\n', ", ");
        Error::new(format!("{}:{}: not TOML: {message}", path.display(), document.line(at)))
    })?;
    let mut layer = Layer::default();
    document.table("", root.get_ref(), &mut layer)?;
    Ok(layer)
}

struct Document<'a> {
    path: Arc<PathBuf>,
    text: &'a str,
}

impl Document<'_> {
    fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    fn table(&self, prefix: &str, table: &DeTable<'_>, layer: &mut Layer) -> Result<(), Error> {
        for (name, value) in table {
            let key =
                if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
            let line = self.line(name.span().start);
            let origin = Origin::File { path: self.path.clone(), line, key: key.clone() };
            if let Some(setting) = catalog::ALL.into_iter().find(|setting| setting.key == key) {
                let texts = texts(setting, value).map_err(|found| {
                    Error::new(format!("{origin}: expected {}, found {found}", expected(setting.form)))
                })?;
                layer.insert(setting, Given { origin, texts });
            } else if let Some(entry) = refused::by_key(&key) {
                return Err(Error::new(entry.message(&origin.to_string())));
            } else if let (DeValue::Table(inner), true) = (value.get_ref(), is_table(&key)) {
                self.table(&key, inner, layer)?;
            } else {
                return Err(Error::new(format!("{origin} is not a setting of this relay: {}", known(prefix))));
            }
        }
        Ok(())
    }
}

/// The keys that may stand in the table `prefix`.
fn known(prefix: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for setting in catalog::ALL {
        let rest = if prefix.is_empty() {
            Some(setting.key)
        } else {
            setting.key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'))
        };
        if let Some(name) = rest.and_then(|rest| rest.split('.').next())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    match (prefix.is_empty(), names.is_empty()) {
        (true, _) => format!("the file has {}", names.join(", ")),
        (false, true) => format!("nothing in [{prefix}] is; remove it"),
        (false, false) => format!("[{prefix}] has {}", names.join(", ")),
    }
}

/// Whether a setting, known or refused, is below `key`.
fn is_table(key: &str) -> bool {
    let below = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    catalog::ALL.iter().any(|setting| below(setting.key))
        || refused::ALL.iter().filter_map(|entry| entry.key).any(below)
}

fn expected(form: Form) -> &'static str {
    match form {
        Form::Text => "a string",
        Form::Number => "an integer",
        Form::Bool | Form::Switch => "true or false",
        Form::Texts => "a string or an array of strings",
        Form::Numbers => "an integer or an array of integers",
        Form::Peers => "a URL, a table of url, cost and token, or an array of them",
    }
}

/// The texts of a value, or the name of the type that was found instead of the expected one.
fn texts(setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, &'static str> {
    match (setting.form, value.get_ref()) {
        (Form::Texts | Form::Numbers | Form::Peers, DeValue::Array(items)) => {
            items.iter().map(|item| scalar(setting.form, item.get_ref())).collect()
        }
        (form, value) => Ok(vec![scalar(form, value)?]),
    }
}

fn scalar(form: Form, value: &DeValue<'_>) -> Result<String, &'static str> {
    match (form, value) {
        (Form::Text | Form::Texts | Form::Peers, DeValue::String(text)) => Ok(text.to_string()),
        (Form::Peers, DeValue::Table(table)) => json(table),
        (Form::Number | Form::Numbers, DeValue::Integer(number)) => {
            // Digits of another base are normalised here; the size is checked where the setting is parsed.
            i128::from_str_radix(number.as_str(), number.radix())
                .map(|number| number.to_string())
                .map_err(|_| "a larger one")
        }
        (Form::Bool | Form::Switch, DeValue::Boolean(value)) => Ok(value.to_string()),
        (_, value) => Err(value.type_str()),
    }
}

/// A table of plain values as JSON.
fn json(table: &DeTable<'_>) -> Result<String, &'static str> {
    let mut object = serde_json::Map::new();
    for (name, value) in table {
        let value = match value.get_ref() {
            DeValue::String(text) => text.to_string().into(),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| "a table with a number out of range")?
                .into(),
            DeValue::Boolean(value) => (*value).into(),
            DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                return Err("a table with more than texts and numbers");
            }
        };
        object.insert(name.get_ref().to_string(), value);
    }
    Ok(serde_json::Value::Object(object).to_string())
}
