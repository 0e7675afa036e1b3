//! big
