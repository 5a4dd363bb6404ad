//! An authenticated liar in a cluster of four, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::liar::TARGET.run)(input);
});
