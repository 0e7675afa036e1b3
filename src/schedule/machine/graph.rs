//! Pictures of the machine, drawn from its table. Pure: text out. `shiftboss on-change --graph` prints
//! them, and docs/spec/on-change.md shows one.

use std::fmt::Write;

use super::table::{Row, State, TABLE};

pub fn dot() -> String {
    let mut text = String::from("digraph on_change {\n    node [shape=box, style=rounded];\n");
    for state in State::ALL {
        let _ = writeln!(text, "    {state:?} [label=\"{}\"];", state.name());
    }
    for row in &TABLE {
        let _ = writeln!(text, "    {:?} -> {:?} [label=\"{}\"];", row.from, row.to, label(row));
    }
    text.push_str("}\n");
    text
}

pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for state in State::ALL {
        let _ = writeln!(text, "    {state:?}: {}", state.name());
    }
    for row in &TABLE {
        let _ = writeln!(text, "    {:?} --> {:?}: {}", row.from, row.to, label(row));
    }
    text
}

/// The event, and a sign where a run starts.
fn label(row: &Row) -> String {
    let sign = if row.starts { " / run" } else { "" };
    format!("{}{sign}", row.event.name())
}
