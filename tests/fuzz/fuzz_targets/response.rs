//! The body of every response of upstream that is read here, in every version.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::response(input));
