//! What is shown of a queue, once for all who show it: commands as text, `web` as pages, `top` on a terminal, JSON and metrics. Called by
//! `commands/views`, `web`, `top` and `metrics`.
//!
//! - [`health`]: whether a daemon is up, and what is wrong; [`troubles`] lists it.
//! - [`question`]: what can be listed, how it is asked for, and when turns come.
//! - [`table`]: tables of typed cells. [`listings`] and [`machines`] make one of each listing, [`status`] text of all that is known.
//! - [`key`]: where a key stands, in sentences. [`simulated`]: what simulations came to.
//!
//! It is pure: it asks nobody, and knows no terminal, no HTML and no socket.

pub mod health;
pub mod key;
pub mod listings;
pub mod machines;
pub mod question;
pub mod simulated;
pub mod status;
pub mod table;
#[cfg(test)]
mod tests;
mod troubles;
