//! docs/scenarios.md names tests that there are.

use anyhow::{Context as _, ensure};
use std::path::Path;

/// Guards the page against tests that were renamed or removed.
#[test]
fn every_test_that_the_page_names_exists() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let page = std::fs::read_to_string(root.join("docs/scenarios.md")).context("the page")?;
    let named: Vec<(&str, &str)> =
        page.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect();
    ensure!(named.len() > 50, "only {} tests are named: has the form changed?", named.len());
    let mut missing = Vec::new();
    for (file, test) in named {
        let outside = ["protocol/", "relay/", "supervisor/"].iter().any(|package| file.starts_with(package));
        let folder = if outside { root.to_owned() } else { root.join("tests/tests") };
        let text = std::fs::read_to_string(folder.join(format!("{file}.rs"))).unwrap_or_default();
        if !text.contains(&format!("fn {test}(")) {
            missing.push(format!("{file}::{test}"));
        }
    }
    ensure!(missing.is_empty(), "docs/scenarios.md names tests that do not exist: {missing:?}");
    Ok(())
}

/// Guards the page against scenarios that are left out: the numbers of all sections.
#[test]
fn every_scenario_has_its_row() -> anyhow::Result<()> {
    const ROWS: [u32; 45] = [
        2, 3, 4, 5, 7, 8, 11, 14, 15, 16, 17, 18, 19, 21, 22, 24, 25, 26, 27, 29, 30, 31, 32, 33, 34, 35, 37, 39, 40,
        42, 43, 45, 47, 50, 51, 52, 54, 55, 56, 58, 59, 61, 63, 64, 65,
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let page = std::fs::read_to_string(root.join("docs/scenarios.md")).context("the page")?;
    let number = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u32>().ok();
    let found: Vec<u32> = page.lines().filter_map(number).collect();
    assert_eq!(found, ROWS);
    Ok(())
}
