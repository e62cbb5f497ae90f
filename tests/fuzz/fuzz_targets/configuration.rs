//! The text of a configuration file, with `--set` arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::configuration(input));
