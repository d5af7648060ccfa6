//! A relay that dies: new handshakes wait and succeed, its clients know at once, and nobody else notices anything.

mod astray;
mod forged;
mod heavy;
mod held;
mod loops;
mod steps;
mod told;
