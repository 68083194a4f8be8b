use std::io::ErrorKind;

use cairn_base::Disk;
use cairn_sim::{Call, Fault, SimDisk};

#[test]
fn the_nth_call_fails_once() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    disk.add_fault(Fault::once(Some(Call::Write), 2).kind(ErrorKind::StorageFull));
    let kinds: Vec<_> =
        (0..4).map(|i| file.write_at(&[&[1]], i).map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Ok(()), Ok(()), Err(ErrorKind::StorageFull), Ok(())]);
    assert_eq!(disk.faults_fired(), 1);
}

#[test]
fn a_sticky_fault_stays_until_cleared() {
    let disk = SimDisk::new(1);
    disk.add_fault(Fault::once(None, 1).sticky());
    let file = disk.create("a").unwrap();
    assert!(file.sync_data().is_err());
    assert!(disk.list().is_err());
    disk.clear_faults();
    assert!(file.sync_data().is_ok());
}

#[test]
fn a_full_disk_refuses_until_something_is_removed() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(64 << 10));
    let first = disk.create("a").unwrap();
    first.allocate(60 << 10).unwrap();
    first.write_at(&[&[1; 60 << 10]], 0).unwrap();
    let second = disk.create("b").unwrap();
    assert_eq!(second.allocate(8 << 10).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(second.write_at(&[&[1; 8192]], 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.free_bytes().unwrap(), 4 << 10);
    disk.remove("a").unwrap();
    second.write_at(&[&[1; 8192]], 0).unwrap();
}

#[test]
fn a_flipped_bit_is_seen() {
    let disk = SimDisk::new(1);
    let sub = disk.sub("d").unwrap();
    sub.create("a").unwrap().write_at(&[&[0; 9]], 0).unwrap();
    assert!(disk.list().unwrap().is_empty());
    assert_eq!(sub.list().unwrap(), ["a"]);
    let file = disk.create("b").unwrap();
    file.write_at(&[&[0; 9]], 0).unwrap();
    disk.flip_bit("b", 3, 7).unwrap();
    assert_eq!(disk.contents("b").unwrap(), [0, 0, 0, 128, 0, 0, 0, 0, 0]);
}
