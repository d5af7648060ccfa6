//! What the guard is told: eight bytes a word.

use std::time::Duration;

/// One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Once no supervisor is there, generations may take so long to end by themselves; to the millisecond.
    Patience(Duration),
    /// The guard is not needed any more.
    End,
}

impl Word {
    /// The length of each.
    pub const BYTES: usize = 8;

    /// Milliseconds, little-endian; all ones for the end.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        match self {
            Self::Patience(patience) => u64::try_from(patience.as_millis()).unwrap_or(u64::MAX - 1).to_le_bytes(),
            Self::End => u64::MAX.to_le_bytes(),
        }
    }

    /// The reverse.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        match u64::from_le_bytes(bytes) {
            u64::MAX => Self::End,
            millis => Self::Patience(Duration::from_millis(millis)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for word in [Word::End, Word::Patience(Duration::ZERO), Word::Patience(Duration::from_millis(90_001))] {
            assert_eq!(Word::from_bytes(word.to_bytes()), word);
        }
    }
}
