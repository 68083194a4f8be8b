//! Looks at the store for its pages: one look serves all pages that show the same, while any is
//! open. The looks of the last minutes are kept.

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

/// State that the pages of the store share.
pub struct Looks {
    pub metrics: Arc<Metrics>,
    pub sampler: Sampler,
    pub feeds: Feeds,
    /// Looks for the findings of the doctor.
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
