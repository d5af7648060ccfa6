//! Harness and clients for the tests and benches of the real binaries.
