//! What must not be harmed, whatever is there and whatever comes: files of others, at a start that is
//! refused and where somebody planted them.

mod limits;
mod planted;
mod refused;
mod signals;
mod tree;
