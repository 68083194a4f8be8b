use std::collections::BTreeMap;

use parking_lot::Mutex;
use tonic::Code;

use super::*;
use crate::store::Page;

/// Buckets in memory: their quotas, and whether something is in them. Those of [`OTHERS`] belong to
/// another user.
#[derive(Default)]
struct InMemory(Mutex<BTreeMap<String, (u64, bool)>>);

const OTHERS: &str = "csi-others";

impl Store for InMemory {
    fn find(&self, bucket: &str) -> Result<Option<StoredVolume>, StoreError> {
        let found = self.0.lock().get(bucket).map(|(quota, _)| *quota);
        Ok(found.map(|quota| StoredVolume {
            bucket: bucket.to_owned(),
            quota,
            is_own: bucket != OTHERS,
        }))
    }

    fn make(&self, bucket: &str) -> Result<(), StoreError> {
        self.0.lock().entry(bucket.to_owned()).or_insert((0, true));
        Ok(())
    }

    fn set_quota(&self, bucket: &str, bytes: u64) -> Result<(), StoreError> {
        let mut buckets = self.0.lock();
        let missing = || StoreError::NotFound(bucket.to_owned());
        buckets.get_mut(bucket).ok_or_else(missing)?.0 = bytes;
        Ok(())
    }

    fn export(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn end_export(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, StoreError> {
        let buckets = self.0.lock();
        let wanted = buckets.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut wanted = wanted.filter(|(name, _)| name.as_str() > after).peekable();
        let mut page = Page::default();
        while page.volumes.len() < limit
            && let Some((name, (quota, _))) = wanted.next()
        {
            let is_own = name != OTHERS;
            page.volumes.push(StoredVolume { bucket: name.clone(), quota: *quota, is_own });
        }
        let last = page.volumes.last().map(|volume| volume.bucket.clone());
        page.next = wanted.peek().and(last);
        Ok(page)
    }

    fn clear(&self, bucket: &str) -> Result<(), StoreError> {
        if let Some((_, is_full)) = self.0.lock().get_mut(bucket) {
            *is_full = false;
        }
        Ok(())
    }

    fn remove(&self, bucket: &str) -> Result<(), StoreError> {
        let mut buckets = self.0.lock();
        match buckets.get(bucket) {
            None => Err(StoreError::NotFound(bucket.to_owned())),
            Some((_, true)) => Err(StoreError::Refused("not empty".to_owned())),
            Some(_) => {
                buckets.remove(bucket);
                Ok(())
            }
        }
    }
}

fn capacity(required: u64, limit: u64) -> Capacity {
    Capacity { required, limit }
}

#[test]
fn a_volume_is_made_once() {
    let store = InMemory::default();
    let made = create(&store, "a", false, capacity(10, 0)).unwrap();
    assert_eq!((made.volume_id.as_str(), made.capacity_bytes), ("csi-a", 10));
    let again = create(&store, "a", false, capacity(5, 20)).unwrap();
    assert_eq!(again, made);
    for (is_kept, other) in
        [(false, capacity(11, 0)), (false, capacity(0, 9)), (true, capacity(10, 0))]
    {
        let why = create(&store, "a", is_kept, other).unwrap_err();
        assert_eq!(why.code(), Code::AlreadyExists, "{other:?}");
    }
    assert_eq!(store.0.lock().len(), 1);
}

#[test]
fn a_volume_that_was_begun_is_finished() {
    let store = InMemory::default();
    store.make("csi-a").unwrap();
    let made = create(&store, "a", false, capacity(10, 0)).unwrap();
    assert_eq!(made.capacity_bytes, 10);
    assert_eq!(store.find("csi-a").unwrap().unwrap().quota, 10);
}

#[test]
fn only_volumes_of_drivers_are_deleted_and_those_to_keep_are_kept() {
    let store = InMemory::default();
    for bucket in ["photos", "csi-a", "csi-b--keep"] {
        store.make(bucket).unwrap();
        for _ in 0..2 {
            delete(&store, &VolumeId::parse(bucket).unwrap()).unwrap();
        }
    }
    let left: Vec<String> = store.0.lock().keys().cloned().collect();
    assert_eq!(left, ["csi-b--keep", "photos"]);
}

#[test]
fn a_volume_becomes_larger_and_never_smaller() {
    let store = InMemory::default();
    create(&store, "a", false, capacity(10, 0)).unwrap();
    let id = VolumeId::of_name("a", false);
    assert_eq!(expand(&store, &id, capacity(20, 0)).unwrap(), 20);
    assert_eq!(expand(&store, &id, capacity(15, 0)).unwrap(), 20);
    assert_eq!(expand(&store, &id, capacity(5, 15)).unwrap_err().code(), Code::OutOfRange);
    assert_eq!(store.find("csi-a").unwrap().unwrap().quota, 20);
    let gone = VolumeId::of_name("b", false);
    assert_eq!(expand(&store, &gone, capacity(1, 0)).unwrap_err().code(), Code::NotFound);
    // The bucket of somebody else keeps its quota.
    store.make("photos").unwrap();
    store.set_quota("photos", 10).unwrap();
    let other = VolumeId::parse("photos").unwrap();
    assert_eq!(
        expand(&store, &other, capacity(20, 0)).unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[test]
fn a_listing_has_all_volumes_of_drivers() {
    let store = InMemory::default();
    for bucket in ["csi-a", "csi-b", "csi-c", "photos"] {
        store.make(bucket).unwrap();
    }
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let page = list(&store, 2, &token).unwrap();
        assert!(page.entries.len() <= 2);
        seen.extend(page.entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id)));
        if page.next_token.is_empty() {
            break;
        }
        token = page.next_token;
    }
    assert_eq!(seen, ["csi-a", "csi-b", "csi-c"]);
    for bad in ["invalid-token", "../", "photos"] {
        assert_eq!(list(&store, 2, bad).unwrap_err().code(), Code::Aborted, "{bad}");
    }
}

#[test]
fn parameters_that_are_not_known_are_refused() {
    let with = |name: &str, value: &str| is_kept(&HashMap::from([(name.into(), value.into())]));
    assert!(with("onDelete", "retain").unwrap() && !with("onDelete", "delete").unwrap());
    assert!(with("csi.storage.k8s.io/pvc/name", "claim").is_ok());
    for (name, value) in [("onDelete", "keep"), ("ondelete", "retain"), ("server", "10.0.0.9")] {
        assert_eq!(with(name, value).unwrap_err().code(), Code::InvalidArgument, "{name}");
    }
}

#[test]
fn a_capacity_makes_sense() {
    let of = |required_bytes, limit_bytes| {
        Capacity::of(Some(CapacityRange { required_bytes, limit_bytes }))
    };
    assert_eq!(of(0, 7).unwrap().quota(), 7);
    assert_eq!(of(-1, 0).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(of(9, 8).unwrap_err().code(), Code::OutOfRange);
}

#[test]
fn a_bucket_of_another_user_is_no_volume() {
    let store = InMemory::default();
    store.make(OTHERS).unwrap();
    let refused = create(&store, "others", false, Capacity::default()).unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    let id = VolumeId::parse(OTHERS).unwrap();
    delete(&store, &id).unwrap();
    assert!(store.find(OTHERS).unwrap().is_some(), "it stays");
}
