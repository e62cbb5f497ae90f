//! What is read back from outside: a WAL segment, its key, a record of the metadata log, a whole log.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile_input::stored(input));
