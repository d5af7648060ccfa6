//! Relays that dial each other: media across them, redirects, credentials, upgrades.

mod dialing;
mod node;
mod prices;
mod redirects;
mod upgrades;
mod whereto;
