//! The decoders of the file system's wire, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::xdr::TARGET.run)(input);
});
