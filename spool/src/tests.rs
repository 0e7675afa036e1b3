//! The spool, tested through its interface, on real directories, and below it call by call.

mod big;
mod by_hand;
mod crashes;
mod defects;
mod drafts;
mod durability;
mod faults;
mod faulty;
mod leases;
mod life;
mod looking;
mod multispool;
mod names;
mod operations;
mod owners;
mod planted;
mod readers;
mod reference;
mod support;
