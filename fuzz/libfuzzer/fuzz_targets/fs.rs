//! Any bytes as operations of the file system, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::fs::TARGET.run)(input);
});
