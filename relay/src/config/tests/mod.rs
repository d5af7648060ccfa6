//! The settings as a whole: what wins, what is refused, what is said.

mod docs;
mod precedence;
mod refusals;
mod values;

use super::{Config, Error, Request};
use std::ffi::OsString;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// What a relay needs to be given at least.
pub(super) const LEAST: [&str; 4] = ["--listen-tls-generate", "localhost", "--auth-public", "**"];

/// A command line, an environment and a file to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    flags: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    file: Option<String>,
}

impl Given {
    pub(super) fn flags(flags: &[&str]) -> Self {
        Self::default().and_flags(flags)
    }

    pub(super) fn and_flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(OsString::from));
        self
    }

    pub(super) fn and_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(super) fn and_file(mut self, text: &str) -> Self {
        self.file = Some(text.to_owned());
        self
    }

    /// Reads it on a machine of six cores. The file is called relay.toml in an error.
    pub(super) fn read(&self) -> Result<Request, String> {
        let directory = tempfile::tempdir().unwrap();
        let path: PathBuf = directory.path().join("relay.toml");
        let mut arguments = vec![OsString::from("moq-relay")];
        if let Some(text) = &self.file {
            std::fs::write(&path, text).unwrap();
            arguments.push(path.clone().into());
        }
        arguments.extend(self.flags.iter().cloned());
        Config::read(arguments, self.variables.clone(), NonZeroU16::new(6).unwrap())
            .map_err(|error: Error| error.to_string().replace(&path.display().to_string(), "relay.toml"))
    }

    pub(super) fn config(&self) -> Config {
        match self.read() {
            Ok(Request::Run(config)) => *config,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    /// The error, which must be one line.
    pub(super) fn error(&self) -> String {
        match self.read() {
            Err(error) => {
                assert!(!error.contains('\n') && !error.is_empty(), "not one line: {error:?}");
                error
            }
            Ok(request) => panic!("{self:?} is accepted: {request:?}"),
        }
    }
}
