//! The registers' decoders and a server of each protocol, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::registers::TARGET.run)(input);
});
