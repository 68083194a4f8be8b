//! The looks that pages of the store take: once for all pages that show the same, while somebody
//! sees one. The last minutes of them are kept.

pub mod feeds;
pub mod sampler;
pub mod samples;

use std::sync::Arc;

use cairn_doors::metrics::Metrics;
use cairn_fs::Fs;
use cairn_logs::follow::Tails;

use feeds::Feeds;
use sampler::Sampler;
use samples::Samples;

/// All that the pages of the store have behind them.
pub struct Looks {
    pub metrics: Arc<Metrics>,
    pub sampler: Sampler,
    pub feeds: Feeds,
    /// For the findings of the doctor.
    pub samples: Samples,
    pub tails: Arc<Tails>,
}

impl Looks {
    pub fn new(fs: &Fs, metrics: Arc<Metrics>) -> Looks {
        let sampler = Sampler::new(Arc::clone(&metrics));
        let tails = Tails::new(fs.clone());
        metrics.count_followers(Arc::clone(tails.counts()));
        let (feeds, samples) = (Feeds::default(), Samples::default());
        Looks { metrics, sampler, feeds, samples, tails }
    }
}
