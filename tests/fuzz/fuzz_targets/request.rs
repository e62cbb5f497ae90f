//! The body of every request that is read here, in every version.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::request(input));
