//! What a client sends first: the length of a frame, its header, and then its body.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::frame(input));
