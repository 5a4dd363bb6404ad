//! All decoders, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::decode::TARGET.run)(input);
});
