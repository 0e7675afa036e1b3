//! A clock that goes on while the machine sleeps, and that nobody sets.
//!
//! For the stores that are on a server: who was away for long, asleep or stopped, may have been taken for dead.

pub(crate) use shiftboss_actors::clock::boot_time;
