//! Runs commands: starts them without a shell, limits their time, passes on their output, and makes sure that nothing
//! of them is left, whatever happens to them or to us.
//!
//! Used by everything that runs a user's commands: the runner, `fetch`, `on-change`, the daemon's fetchers. A command
//! gets a session and a process group of its own, and so no terminal. [`Guardian::start`] starts a [`CommandSpec`] and
//! returns a [`Running`], which yields the [`End`]. What outlives the command's own process in its group is killed;
//! only a process that made a session of its own escapes.
//!
//! If our program is killed, two things end its commands: the kernel kills a command's own process (parent-death
//! signal), and the guardian, a process beside us, kills its group. Both are in place before the command's program is
//! executed. Nothing here knows what the commands are for.

mod command;
mod end;
mod guard;
mod guardian;
mod lines;
mod program;
mod pump;
mod spawn;
mod template;

pub use command::{CommandSpec, GRACE, Output, Running, Stream};
pub use end::{End, StartError};
pub use guard::{GuardError, guard};
pub use guardian::Guardian;
pub use lines::{LinePrefixer, line_prefix};
pub use program::{look_for, look_for_in};
pub use pump::{Pump, pipe};
pub use template::{Place, Template};
