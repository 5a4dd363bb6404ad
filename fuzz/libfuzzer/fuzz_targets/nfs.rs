//! The NFS protocol and the store's operations, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    _ = (quorate_fuzz::nfs::TARGET.run)(input);
});
