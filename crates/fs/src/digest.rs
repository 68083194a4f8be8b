//! Digests of object bytes, as S3 defines them.

use std::hash::Hasher as _;

use bytes::Bytes;
use cairn_base::{Error, Result};
use crc_fast::{CrcAlgorithm, checksum_combine};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash64};

use crate::rows::{Algorithm, Checksum, ChecksumKind};

/// Computes an MD5 and checksums of bytes as they pass.
pub struct Digester {
    md5: Option<Md5>,
    hashers: Vec<(Algorithm, Hasher)>,
}

enum Hasher {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Md5(Md5),
    XxHash64(XxHash64),
    XxHash3(XxHash3_64),
    XxHash128(XxHash3_128),
}

/// The results of a [`Digester`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    pub md5: Option<[u8; 16]>,
    /// Checksums, in the order of the requested algorithms.
    pub checksums: Vec<Checksum>,
}

impl Digests {
    /// Returns the MD5 in hex; empty if none was requested.
    pub fn md5_hex(&self) -> String {
        self.md5.map(|md5| hex(&md5)).unwrap_or_default()
    }
}

/// Returns lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Digester {
    pub fn new(md5: bool, algorithms: &[Algorithm]) -> Digester {
        let mut hashers: Vec<(Algorithm, Hasher)> = Vec::with_capacity(algorithms.len());
        for algorithm in algorithms {
            if !hashers.iter().any(|(present, _)| present == algorithm) {
                hashers.push((*algorithm, Hasher::new(*algorithm)));
            }
        }
        Digester { md5: md5.then(Md5::new), hashers }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        for (_, hasher) in &mut self.hashers {
            match hasher {
                Hasher::Crc(crc) => crc.update(bytes),
                Hasher::Sha1(sha) => sha.update(bytes),
                Hasher::Sha256(sha) => sha.update(bytes),
                Hasher::Sha512(sha) => sha.update(bytes),
                Hasher::Md5(md5) => md5.update(bytes),
                Hasher::XxHash64(hash) => hash.write(bytes),
                Hasher::XxHash3(hash) => hash.write(bytes),
                Hasher::XxHash128(hash) => hash.write(bytes),
            }
        }
    }

    pub fn finish(self) -> Digests {
        let checksums = self.hashers.into_iter().map(|(algorithm, hasher)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value: hasher.finish(algorithm),
        });
        Digests { checksums: checksums.collect(), md5: self.md5.map(|md5| md5.finalize().into()) }
    }
}

fn crc_of(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        _ => None,
    }
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Crc32 => Hasher::crc(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Hasher::crc(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Hasher::crc(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
            Algorithm::Md5 => Hasher::Md5(Md5::new()),
            Algorithm::XxHash64 => Hasher::XxHash64(XxHash64::with_seed(0)),
            Algorithm::XxHash3 => Hasher::XxHash3(XxHash3_64::new()),
            Algorithm::XxHash128 => Hasher::XxHash128(XxHash3_128::new()),
        }
    }

    fn crc(algorithm: CrcAlgorithm) -> Hasher {
        Hasher::Crc(crc_fast::Digest::new(algorithm))
    }

    fn finish(self, algorithm: Algorithm) -> Bytes {
        match self {
            Hasher::Crc(crc) => crc_bytes(crc.finalize(), algorithm),
            Hasher::Sha1(sha) => Bytes::copy_from_slice(&sha.finalize()),
            Hasher::Sha256(sha) => Bytes::copy_from_slice(&sha.finalize()),
            Hasher::Sha512(sha) => Bytes::copy_from_slice(&sha.finalize()),
            Hasher::Md5(md5) => Bytes::copy_from_slice(&md5.finalize()),
            Hasher::XxHash64(hash) => Bytes::copy_from_slice(&hash.finish().to_be_bytes()),
            Hasher::XxHash3(hash) => Bytes::copy_from_slice(&hash.finish().to_be_bytes()),
            Hasher::XxHash128(hash) => Bytes::copy_from_slice(&hash.finish_128().to_be_bytes()),
        }
    }
}

fn crc_bytes(crc: u64, algorithm: Algorithm) -> Bytes {
    Bytes::copy_from_slice(&crc.to_be_bytes()[8 - algorithm.checksum_bytes()..])
}

/// Returns the checksum of an object from those of its parts, given with their sizes in order: for
/// `FullObject` the checksum of all bytes (CRCs only), for `Composite` the checksum of the parts'
/// checksums.
pub fn combine_checksums(
    algorithm: Algorithm,
    kind: ChecksumKind,
    parts: &[(Bytes, u64)],
) -> Result<Checksum> {
    let value = match (kind, crc_of(algorithm)) {
        (ChecksumKind::Composite, _) => {
            let mut digester = Digester::new(false, &[algorithm]);
            parts.iter().for_each(|(value, _)| digester.update(value));
            digester.finish().checksums.swap_remove(0).value
        }
        (ChecksumKind::FullObject, Some(crc)) => {
            let mut whole = crc_fast::checksum(crc, b"");
            for (value, size) in parts {
                let part = value.iter().fold(0u64, |crc, byte| crc << 8 | u64::from(*byte));
                whole = checksum_combine(crc, whole, part, *size);
            }
            crc_bytes(whole, algorithm)
        }
        (ChecksumKind::FullObject, None) => {
            let what = format!("a full-object checksum from parts needs a CRC, not {algorithm:?}");
            return Err(Error::Invalid(what));
        }
    };
    Ok(Checksum { algorithm, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the algorithms over "123456789".
    #[test]
    fn known_digests() {
        let mut digester = Digester::new(true, &Algorithm::ALL);
        digester.update(b"1234");
        digester.update(b"56789");
        let digests = digester.finish();
        assert_eq!(digests.md5_hex(), "25f9e794323b453885f5181f1b624d0b");
        let found: Vec<String> = digests.checksums.iter().map(|sum| hex(&sum.value)).collect();
        assert_eq!(found[0], "cbf43926");
        assert_eq!(found[1], "e3069283");
        assert_eq!(found[2], "ae8b14860a799888");
        assert_eq!(found[3], "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert!(found[4].starts_with("15e2b0d3c33891ebb0f1ef609ec419420c20e320"));
        assert!(found[5].starts_with("d9e6762dd1c8eaf6d61b3c6192fc408d"));
        assert_eq!(found[6], digests.md5_hex());
        assert_eq!(found[7], "8cb841db40e6ae83");
        assert_eq!(found[8], "72dcb18b67a17dff");
        assert_eq!(found[9], "33119477ede5dcd5e9716427681d5860");
        for (algorithm, sum) in Algorithm::ALL.into_iter().zip(&digests.checksums) {
            assert_eq!(sum.value.len(), algorithm.checksum_bytes(), "{algorithm:?}");
        }
    }

    #[test]
    fn parts_combine_to_the_whole() {
        let data: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let sum = |bytes: &[u8]| {
                let mut digester = Digester::new(false, &[algorithm]);
                digester.update(bytes);
                digester.finish().checksums.swap_remove(0).value
            };
            let parts: Vec<_> =
                data.chunks(33_333).map(|part| (sum(part), part.len() as u64)).collect();
            let whole = combine_checksums(algorithm, ChecksumKind::FullObject, &parts).unwrap();
            assert_eq!(whole.value, sum(&data), "{algorithm:?}");
        }
    }
}
