//! The store's operations, one by one: `cargo bench -p shiftboss-bench`.

fn main() {}
