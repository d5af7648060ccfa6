//! One node of several generations: publishers and subscribers of one broadcast in different processes.

mod announced;
mod clients;
mod crossing;
mod joining;
