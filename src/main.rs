//! The program: a page.

fn main() {}
