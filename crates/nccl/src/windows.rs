//! Windows of a vector that consists of shares, one of each rank: NCCL gathers and scatters long vectors a window at a time.

use std::ops::Range;

/// What of a window belongs to one rank and lies in one part of the memory that holds the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whose share it is of.
    pub rank: u32,
    /// Where it begins in the window's memory at that rank's own side: bytes behind the first of its own share that is in the window.
    pub within_own: usize,
    /// Which part.
    pub part: usize,
    /// Where it begins in that part, in bytes.
    pub within_part: usize,
    /// How long it is.
    pub bytes: usize,
}

/// The pieces of a window of `shares` shares of `share_bytes`, in parts of so many bytes, in the order of the vector.
///
/// # Errors
/// In words, where the window is not in the vector, or the parts are not as long as the window.
pub fn pieces(shares: u32, share_bytes: usize, window: Range<usize>, parts: &[usize]) -> Result<Vec<Piece>, String> {
    let whole = share_bytes.checked_mul(shares as usize).ok_or_else(|| format!("bytesPerRank = {share_bytes}: expected fewer"))?;
    if window.start > window.end || window.end > whole {
        return Err(format!("the window is of bytes {} to {}: expected some of the {whole} of all ranks", window.start, window.end));
    }
    let there = parts.iter().try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes));
    if there != Some(window.len()) {
        return Err(format!("the parts have {} bytes: expected {}, those of the window", there.unwrap_or(usize::MAX), window.len()));
    }
    let mut pieces = Vec::new();
    let mut at = window.start;
    for (part, bytes) in parts.iter().copied().enumerate() {
        let begin = at;
        while at < begin + bytes {
            let rank = at / share_bytes;
            let end = ((rank + 1) * share_bytes).min(begin + bytes);
            let first_of_own = (rank * share_bytes).max(window.start);
            pieces.push(Piece { rank: rank as u32, within_own: at - first_of_own, part, within_part: at - begin, bytes: end - at });
            at = end;
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shares: u32, share_bytes: usize, window: Range<usize>, parts: &[usize]) -> Vec<(u32, usize, usize, usize, usize)> {
        let pieces = pieces(shares, share_bytes, window, parts).unwrap();
        pieces.iter().map(|piece| (piece.rank, piece.within_own, piece.part, piece.within_part, piece.bytes)).collect()
    }

    #[test]
    fn a_window_is_cut_at_the_ends_of_shares_and_parts() {
        assert_eq!(of(3, 10, 0..30, &[30]), [(0, 0, 0, 0, 10), (1, 0, 0, 10, 10), (2, 0, 0, 20, 10)]);
        assert_eq!(of(3, 10, 4..16, &[12]), [(0, 0, 0, 0, 6), (1, 0, 0, 6, 6)]);
        assert_eq!(of(3, 10, 12..18, &[6]), [(1, 0, 0, 0, 6)]);
        assert_eq!(of(3, 10, 4..27, &[3, 0, 20]), [(0, 0, 0, 0, 3), (0, 3, 2, 0, 3), (1, 0, 2, 3, 10), (2, 0, 2, 13, 7)]);
        assert_eq!(of(3, 10, 30..30, &[]), []);
        assert_eq!(of(3, 0, 0..0, &[0]), []);
    }

    #[test]
    fn every_byte_of_a_window_is_in_one_piece() {
        for (start, end) in (0..=24).flat_map(|start| (start..=24).map(move |end| (start, end))) {
            for first in 0..=end - start {
                let parts = [first, end - start - first];
                let mut seen = [0; 24];
                for piece in pieces(4, 6, start..end, &parts).unwrap() {
                    let at = start + parts[..piece.part].iter().sum::<usize>() + piece.within_part;
                    assert!(piece.bytes > 0 && at / 6 == piece.rank as usize && (at + piece.bytes - 1) / 6 == piece.rank as usize);
                    seen[at..at + piece.bytes].iter_mut().for_each(|count| *count += 1);
                    assert_eq!(at - piece.within_own, (piece.rank as usize * 6).max(start));
                }
                assert!(seen.iter().enumerate().all(|(byte, count)| *count == usize::from((start..end).contains(&byte))));
            }
        }
    }

    #[test]
    fn impossible_windows_are_told() {
        assert!(pieces(3, 10, 4..31, &[27]).unwrap_err().contains("of the 30 of all ranks"));
        assert!(pieces(3, 10, 4..8, &[5]).unwrap_err().contains("expected 4"));
        assert!(pieces(3, usize::MAX, 4..8, &[4]).unwrap_err().contains("bytesPerRank"));
        assert!(pieces(3, 10, 4..8, &[usize::MAX, 5]).unwrap_err().contains("expected 4"));
    }
}
