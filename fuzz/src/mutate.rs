//! Makes inputs out of others. Small steps on fields find more than noise does (ByzzFuzz).

/// A small generator: fast, seeded, good enough to choose mutations (xorshift64*).
pub struct Random(u64);

impl Random {
    /// Returns the generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let Ok(bound) = u64::try_from(bound) else { return 0 };
        usize::try_from(self.draw() % bound.max(1)).unwrap_or(0)
    }
}

/// Values at which arithmetic and bounds change their mind.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    u64::MAX >> 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Changes `input` in one to eight places, by what `other` has as well; never longer than `max`.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], max: usize, random: &mut Random) {
    for _ in 0..=random.below(8) {
        match random.below(9) {
            0 => flip_bit(input, random),
            1 => set_byte(input, random),
            2 | 3 => set_field(input, random),
            4 => step_field(input, random),
            5 => remove(input, random),
            6 => repeat(input, random),
            7 => insert(input, random),
            _ => splice(input, other, random),
        }
        input.truncate(max);
    }
}

fn flip_bit(input: &mut [u8], random: &mut Random) {
    let at = random.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

fn set_byte(input: &mut [u8], random: &mut Random) {
    let at = random.below(input.len());
    let value = random.draw().to_le_bytes()[0];
    if let Some(byte) = input.get_mut(at) {
        *byte = value;
    }
}

/// Returns a field of 1, 2, 4 or 8 bytes somewhere in `input`.
fn field<'a>(input: &'a mut [u8], random: &mut Random) -> &'a mut [u8] {
    let width = 1 << random.below(4);
    let at = random.below(input.len());
    let end = (at + width).min(input.len());
    &mut input[at..end]
}

fn set_field(input: &mut [u8], random: &mut Random) {
    let edge = EDGES[random.below(EDGES.len())];
    let field = field(input, random);
    field.copy_from_slice(&edge.to_le_bytes()[..field.len()]);
}

/// One more or one less, as in a sequence number or a count.
fn step_field(input: &mut [u8], random: &mut Random) {
    let up = random.below(2) == 0;
    let field = field(input, random);
    let mut bytes = [0; 8];
    bytes[..field.len()].copy_from_slice(field);
    let value = u64::from_le_bytes(bytes);
    let stepped = if up { value.wrapping_add(1) } else { value.wrapping_sub(1) };
    field.copy_from_slice(&stepped.to_le_bytes()[..field.len()]);
}

fn range(len: usize, random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(len);
    let length = match random.below(3) {
        0 => random.below(8),
        1 => random.below(80),
        _ => random.below(len),
    };
    start..(start + length).min(len)
}

fn remove(input: &mut Vec<u8>, random: &mut Random) {
    input.drain(range(input.len(), random));
}

fn repeat(input: &mut Vec<u8>, random: &mut Random) {
    let piece = input[range(input.len(), random)].to_vec();
    let at = random.below(input.len() + 1);
    input.splice(at..at, piece);
}

fn insert(input: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(input.len() + 1);
    let length = 1 + random.below(40);
    let fill = if random.below(2) == 0 { 0 } else { random.draw().to_le_bytes()[0] };
    input.splice(at..at, std::iter::repeat_n(fill, length));
}

fn splice(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let piece = &other[range(other.len(), random)];
    let to = range(input.len(), random);
    input.splice(to, piece.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_change_inputs_and_keep_the_bound() {
        let mut random = Random::new(7);
        let mut changed = 0;
        for _ in 0..10_000 {
            let mut input = vec![0; random.below(100)];
            let before = input.clone();
            mutate(&mut input, b"other", 64, &mut random);
            assert!(input.len() <= 64);
            changed += usize::from(input != before);
        }
        assert!(changed > 9_000, "{changed}");
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let run = || {
            let (mut input, mut random) = (vec![1; 50], Random::new(3));
            (0..100).for_each(|_| mutate(&mut input, b"abc", 200, &mut random));
            input
        };
        assert_eq!(run(), run());
    }
}
