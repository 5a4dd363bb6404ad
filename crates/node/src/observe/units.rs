//! Figures for people.

/// Formats a number of bytes.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x80_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        0x80_0000..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => {
            let tenths = (u128::from(bytes) * 10).div_ceil(1 << 30);
            format!("{}.{} GiB", tenths / 10, tenths % 10)
        }
    }
}

/// Formats a number of seconds.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_few_digits() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1025), "2 KiB");
        assert_eq!(size((8 << 20) - 1), "8192 KiB");
        assert_eq!(size(8 << 20), "8 MiB");
        assert_eq!(size((1 << 30) - 1), "1024 MiB");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(size((4 << 30) + 1), "4.1 GiB");
        assert_eq!(size(u64::MAX), "17179869184.0 GiB");
    }
}
