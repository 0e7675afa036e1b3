//! Runs commands: starts them without a shell, limits their time, passes on what they say, and
//! sees to it that nothing of them is left, whatever becomes of them or of us.
//!
//! Used by whatever runs commands of the user: the runner, `fetch`, `on-change`, the daemon's fetchers. A command gets a
//! session and a process group of its own, and with that no terminal. [`Guardian::start`] starts an [`CommandSpec`] and gives a [`Running`], which
//! tells the [`End`]. What outlives the command's own process in its group is killed; a process that
//! made a session of its own is the exception, and its own master.
//!
//! Three things end a command whose program was killed: the kernel kills the command's own process
//! (parent-death signal), the guardian, a process beside us, kills its group, and both hold from before
//! the command's program is executed. Nothing here knows what the commands are for.

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
