//! What `shiftboss ask --help` lists beside its options: the requests, from the table of verbs. Used by [`crate::cli`].

use shiftboss_protocol::verbs::{VERBS, Who};

/// Columns of a request.
const WIDTH: usize = 32;

pub fn help() -> String {
    let mut help = "\
Examples:
  shiftboss ask READY
  shiftboss ask -t worker.sock 'HELLO 2 me' 'WHY alpha' QUIT

Requests of protocol 2, behind HELLO 2 NAME [LEASE] (* for operators only):
"
    .to_owned();
    for verb in VERBS {
        let star = if verb.who == Who::Operator { '*' } else { ' ' };
        help += &format!("{star} {:WIDTH$} {}\n", verb.synopsis(), verb.help);
    }
    help.pop();
    help
}
