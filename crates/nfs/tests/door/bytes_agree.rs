//! Random reads and writes of files, and the same of bytes in memory.

use cairn_base::Rng;
use cairn_base::rng::SeededRng;

use crate::client::{Args, Client};
use crate::world::{World, run};

/// More than this a file does not get.
const FILE_BYTES: u64 = 300_000;
const PART_BYTES: u64 = 70_000;
const FILES: usize = 4;
/// So many operations apart, what nothing names is removed: it would fill the memory.
const COLLECT: u64 = 500;

struct File {
    handle: Vec<u8>,
    expected: Vec<u8>,
}

/// How many operations: `CAIRN_TEST_NFS_OPERATIONS`, or few.
fn operations() -> u64 {
    let count = std::env::var("CAIRN_TEST_NFS_OPERATIONS").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(2_000)
}

#[test]
fn files_have_the_bytes_that_were_written() {
    run(async {
        let (world, mut after, top) = World::mounted().await;
        let door = world.another_door().await;
        let mut clients = [door.client().await, door.client().await];
        let rng = SeededRng::new(25);
        let mut files = Vec::new();
        for number in 0..FILES {
            let handle = clients[0].create(&top, &format!("file{number}")).await.unwrap();
            files.push(File { handle, expected: Vec::new() });
        }
        for number in 0..operations() {
            if number % COLLECT == 0 {
                world.collect().await;
            }
            // Two clients of one door, of which one hears what the other was told.
            let client = &mut clients[(rng.next_u64() % 2) as usize];
            let file = &mut files[(rng.next_u64() % FILES as u64) as usize];
            let what = step(client, file, &rng).await;
            let size = client.getattr(&file.handle).await.unwrap().size;
            assert_eq!(size, file.expected.len() as u64, "{number}: {what}");
        }
        door.stop().await;
        for file in files {
            let (read, is_end) = after.read(&file.handle, 0, 1 << 20).await.unwrap();
            assert!(read == file.expected && is_end, "at another door, in the end");
        }
    });
}

async fn step(client: &mut Client, file: &mut File, rng: &SeededRng) -> &'static str {
    let File { handle, expected } = file;
    let at = rng.next_u64() % FILE_BYTES;
    let len = rng.next_u64() % PART_BYTES;
    let (from, to) = (at as usize, (at + len) as usize);
    match rng.next_u64() % 10 {
        0..=3 => {
            let data = vec![rng.next_u64() as u8; len as usize];
            let stable = if rng.next_u64().is_multiple_of(8) { 2 } else { 0 };
            client.write(handle, at, &data, stable).await.unwrap();
            if expected.len() < to && len > 0 {
                expected.resize(to, 0);
            }
            if len > 0 {
                expected[from..to].copy_from_slice(&data);
            }
            "written"
        }
        4..=7 => {
            let (read, is_end) = client.read(handle, at, len as u32).await.unwrap();
            let end = to.min(expected.len());
            assert!(read == expected[from.min(end)..end], "{len} bytes at {at}");
            assert!(is_end == (to >= expected.len()) || len == 0, "{len} bytes at {at}: the end");
            "read"
        }
        8 => {
            client.setattr(handle, Args::new().size(at), None).await.unwrap();
            expected.resize(from, 0);
            "cut"
        }
        _ => {
            // Nobody else writes, so nothing is dropped.
            let (_, verifier) = client.write(handle, at, &[], 0).await.unwrap();
            assert_eq!(client.commit(handle).await, Ok(verifier));
            "committed"
        }
    }
}

/// Its bytes are not taken for such that others have written over since.
#[test]
fn a_file_that_was_cut_here_is_written_to_again() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        for at in [3, 5, 9] {
            let file = client.create(&top, &format!("file {at}")).await.unwrap();
            let (_, verifier) = client.write(&file, 0, &[1; 10], 0).await.unwrap();
            client.setattr(&file, Args::new().size(5), None).await.unwrap();
            client.write(&file, at, &[2; 10], 0).await.unwrap();
            assert_eq!(client.getattr(&file).await.unwrap().size, at + 10);
            assert_eq!(client.commit(&file).await, Ok(verifier));
            assert_eq!(client.read(&file, at, 100).await.unwrap().0, [2; 10]);
        }
    });
}
