//! One record batch: the checks, the look-ups and what is rewritten when it is served.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::record_batch(input));
