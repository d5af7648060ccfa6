//! The messages as they are on the wire: the files in `golden/` are what version 1 writes, and may only be added to.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the report")]

use protocol::message::{FromChild, Message, ToChild};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// One file in `golden/`: `from_child.hello.full.json`.
struct Golden {
    path: PathBuf,
    side: String,
    kind: String,
    /// Every field is there; otherwise only those that must be.
    full: bool,
    value: Value,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn golden() -> Vec<Golden> {
    let files = fs::read_dir(root().join("tests/golden")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let [side, kind, extent, "json"] = name.split('.').collect::<Vec<_>>()[..] else { panic!("{name}") };
            let (side, kind, full) = (side.to_owned(), kind.to_owned(), extent == "full");
            let value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            Golden { path, side, kind, full, value }
        })
        .collect()
}

/// What this build makes of a message, and writes in turn.
fn rewrite(side: &str, value: &Value) -> Result<Value, serde_json::Error> {
    fn via<T: Message>(value: &Value) -> Result<Value, serde_json::Error> {
        serde_json::from_value::<T>(value.clone()).map(|message| serde_json::to_value(message).unwrap())
    }
    match side {
        "from_child" => via::<FromChild>(value),
        "to_child" => via::<ToChild>(value),
        other => panic!("{other}"),
    }
}

fn schema(side: &str) -> jsonschema::Validator {
    let text = fs::read_to_string(root().join("../docs/protocol.schema.json")).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let object = schema.as_object_mut().unwrap();
    object.remove("anyOf");
    object.insert("$ref".into(), json!(format!("#/$defs/{side}")));
    jsonschema::draft202012::new(&schema).unwrap()
}

#[test]
fn every_message_has_a_golden_file_and_no_other_has() {
    let of = |side: &str| {
        let files = golden().into_iter().filter(|golden| golden.side == side && golden.full);
        files.map(|golden| golden.kind).collect::<BTreeSet<_>>()
    };
    let types = |types: &[&str]| types.iter().map(|kind| (*kind).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(of("from_child"), types(FromChild::TYPES));
    assert_eq!(of("to_child"), types(ToChild::TYPES));
}

#[test]
fn what_version_1_writes_is_read_and_written_alike() {
    for Golden { path, side, kind, full, value } in golden() {
        assert_eq!(value["type"], kind, "{}", path.display());
        let written = rewrite(&side, &value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if full {
            assert_eq!(written, value, "{}", path.display());
        }
        assert_eq!(rewrite(&side, &written).unwrap(), written, "{}", path.display());
    }
}

/// A later version adds fields; this one must read past them, wherever they are.
#[test]
fn unknown_fields_are_ignored_everywhere() {
    fn add(value: &mut Value) {
        if let Value::Object(fields) = value {
            // What is within the traffic counters is passed on as it is.
            fields.iter_mut().filter(|(name, _)| *name != "traffic").for_each(|(_, value)| add(value));
            fields.insert("later".into(), json!({"any": [1, "thing"]}));
        } else if let Value::Array(values) = value {
            values.iter_mut().for_each(add);
        }
    }
    for Golden { path, side, mut value, .. } in golden() {
        let plain = rewrite(&side, &value).unwrap();
        add(&mut value);
        assert_eq!(rewrite(&side, &value).unwrap(), plain, "{}", path.display());
        assert!(schema(&side).is_valid(&value), "{}", path.display());
    }
}

#[test]
fn what_is_written_passes_the_schema() {
    for Golden { path, side, value, .. } in golden() {
        for value in [rewrite(&side, &value).unwrap(), value] {
            if let Err(error) = schema(&side).validate(&value) {
                panic!("{}: {error} at {}", path.display(), error.instance_path());
            }
        }
    }
}

/// Each required field of each message, taken away, is missed by the schema and by the reader alike.
#[test]
fn schema_and_reader_agree_on_what_is_required() {
    for Golden { path, side, value, .. } in golden() {
        for field in value.as_object().unwrap().keys() {
            let mut less = value.clone();
            less.as_object_mut().unwrap().remove(field);
            let (schema, reader) = (schema(&side).is_valid(&less), rewrite(&side, &less).is_ok());
            assert_eq!(schema, reader, "{} without {field}", path.display());
        }
    }
}

#[test]
fn schema_and_reader_agree_on_wrong_types() {
    fn check<T: Debug>(side: &str, values: &[Value], is_ok: impl Fn(&Value) -> Result<T, serde_json::Error>) {
        for value in values {
            assert!(!schema(side).is_valid(value), "{value}");
            assert!(is_ok(value).is_err(), "{value}");
        }
    }
    let from_child = [
        json!({"type": "ack", "seq": -1}),
        json!({"type": "ack", "seq": "7"}),
        json!({"type": "dance"}),
        json!({"type": "hello"}),
        json!({"type": "stats", "sessions": null}),
    ];
    check("from_child", &from_child, |value| rewrite("from_child", value));
    let to_child = [
        json!({"type": "gro", "on": 1}),
        json!({"type": "canary", "seq": 1, "permille": 70_000}),
        json!({"type": "drain", "seq": 1, "timeout_ms": 1.5}),
        json!({"seq": 1}),
    ];
    check("to_child", &to_child, |value| rewrite("to_child", value));
}
