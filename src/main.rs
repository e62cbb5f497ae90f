//! Parses arguments and runs the command.

fn main() {}
