//! Network interfaces that merge datagrams whatever UDP_GRO says.

use crate::sys::ethtool::features_on;
use std::fmt;

/// Settings that merge datagrams of one client before a socket is chosen, so that a merged one holds packets of several
/// generations (docs/design/steering.md).
const FEATURES: [&str; 2] = ["rx-udp-gro-forwarding", "rx-gro-list"];

/// An interface at which turning UDP_GRO off does not help during an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    /// Its name.
    pub interface: String,
    /// Which settings are on.
    pub features: Vec<&'static str>,
}

impl fmt::Display for Merging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, features } = self;
        let switches: Vec<String> = features.iter().map(|feature| format!("{feature} off")).collect();
        write!(
            f,
            "interface {interface} has {} on: datagrams of several connections arrive as one, and sessions lose packets \
             while two generations are live; turn it off: ethtool -K {interface} {}",
            features.join(" and "),
            switches.join(" "),
        )
    }
}

/// The interfaces of this network namespace that merge datagrams. One that does not say is left out.
#[must_use]
pub fn merging_interfaces() -> Vec<Merging> {
    let Ok(interfaces) = nix::net::if_::if_nameindex() else { return Vec::new() };
    let merging = |name: &std::ffi::CStr| {
        let features = features_on(name, &FEATURES).ok().filter(|features| !features.is_empty())?;
        Some(Merging { interface: name.to_string_lossy().into_owned(), features })
    };
    interfaces.iter().filter_map(|interface| merging(interface.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merging_interface_is_named_with_the_command_that_helps() {
        let merging = Merging { interface: "eth0".to_owned(), features: FEATURES.to_vec() };
        let text = merging.to_string();
        assert!(text.ends_with("ethtool -K eth0 rx-udp-gro-forwarding off rx-gro-list off"), "{text}");
    }
}
