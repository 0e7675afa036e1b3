//! Frames, to the letter, what keys and pictures change in a state, and what a panic leaves.

pub mod fixture;
mod frames;
mod orders;
mod panics;
mod selection;
mod states;
