//! The queue in one SQLite file: [`SqliteRecords`] keeps the records of `shiftboss-queue`, and decides nothing; and
//! [`SqliteReader`] answers questions about it.
//!
//! The tables are in `schema.sql`, the same ones as on a server. [`records`] carries out a batch's transaction, with [`load`], [`save`]
//! and [`header`] for its parts; [`code`] says how values are written. The Python supervisor's four tables are views
//! (`reference.sql`), [`edits`] brings what others write there, and its own databases are [taken over](take_over()) and
//! [given back](give_back()). A queue that moves goes by its [`tables`], and what can be read of a damaged file is [saved](salvage()) into
//! a new one. No actor, no clock, no socket.

mod ask;
mod code;
mod documents;
mod edits;
mod error;
mod flights;
mod give_back;
mod header;
mod load;
mod reader;
mod records;
mod salvage;
mod save;
mod schema;
mod set_aside;
mod snapshot;
mod soundness;
mod standings;
mod sums;
pub mod tables;
mod take_over;

pub use documents::document;
pub use error::classify;
pub use give_back::{GivenBack, give_back};
pub use reader::SqliteReader;
pub use records::{SqliteRecords, at_once};
pub use salvage::{Salvage, Salvaged, open_damaged, salvage};
pub use schema::{VERSION, Whose, make, refused, whose};
pub use set_aside::{SetAside, set_aside};
pub use snapshot::{beside, open_to_read, require_files};
pub use soundness::{Findings, look_through, missing};
pub use take_over::{Progress, TakenOver, require_space, take_over};
