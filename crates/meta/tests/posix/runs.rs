//! Contents as symbols: byte `j` of write `w` is known by those two numbers, so that files of
//! gigabytes are compared without having their bytes.

/// `len` bytes from `at` on are those of write `write` from `from` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub at: u64,
    pub len: u64,
    pub write: u64,
    pub from: u64,
}

/// The bytes of a file or block, by offset; what is in none is zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runs(pub Vec<Run>);

impl Runs {
    pub fn clear(&mut self, start: u64, end: u64) {
        let mut rest = Vec::new();
        for run in &self.0 {
            let run_end = run.at + run.len;
            if run.at < start {
                rest.push(Run { len: run_end.min(start) - run.at, ..*run });
            }
            if run_end > end {
                let at = run.at.max(end);
                rest.push(Run { at, len: run_end - at, from: run.from + at - run.at, ..*run });
            }
        }
        self.0 = rest;
    }

    pub fn put(&mut self, at: u64, len: u64, write: u64, from: u64) {
        self.clear(at, at + len);
        self.0.push(Run { at, len, write, from });
        self.0.sort_by_key(|run| run.at);
    }

    /// The runs of `start..end`, by offset from `start`.
    pub fn range(&self, start: u64, end: u64) -> Runs {
        let mut copy = self.clone();
        copy.clear(0, start);
        copy.clear(end, u64::MAX);
        copy.0.retain(|run| run.len > 0);
        copy.0.iter_mut().for_each(|run| run.at -= start);
        copy
    }

    pub fn put_all(&mut self, at: u64, len: u64, other: &Runs) {
        self.clear(at, at + len);
        for run in &other.0 {
            self.put(at + run.at, run.len, run.write, run.from);
        }
    }

    /// Neighbours that go on in the same write, joined: equal contents are equal then.
    pub fn joined(&self) -> Runs {
        let mut out: Vec<Run> = Vec::new();
        for run in self.0.iter().filter(|run| run.len > 0) {
            match out.last_mut() {
                Some(last)
                    if last.at + last.len == run.at
                        && last.write == run.write
                        && last.from + last.len == run.from =>
                {
                    last.len += run.len;
                }
                _ => out.push(*run),
            }
        }
        Runs(out)
    }

    /// The bytes of the first `len`.
    pub fn bytes(&self, len: u64) -> Vec<u8> {
        let mut out = vec![0; len as usize];
        for run in &self.0 {
            for j in 0..run.len {
                out[(run.at + j) as usize] = symbol(run.write, run.from + j);
            }
        }
        out
    }
}

/// Byte `at` of write `write`; never 0.
pub fn symbol(write: u64, at: u64) -> u8 {
    ((write.wrapping_mul(0x9E37_79B9) >> 3).wrapping_add(at.wrapping_mul(167)) % 255) as u8 + 1
}
