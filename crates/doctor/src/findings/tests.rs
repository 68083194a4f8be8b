use std::collections::BTreeMap;
use std::time::Duration;

use super::report;
use crate::sample::{
    Cgroup, Cluster, DiskTimes, Limits, Node, Pair, Process, Program, Sample, Store, Thread,
};
use crate::{Metrics, Report};

const SECONDS: u64 = 10;

/// A machine of two cores on which nothing happens, and what it is later.
fn quiet() -> (Sample, Sample) {
    let mut before = Sample::default();
    before.host.cores = 2;
    before.nodes = vec![node("")];
    let mut after = before.clone();
    after.at = Duration::from_secs(SECONDS);
    after.host.idle = 2 * 100 * SECONDS;
    (before, after)
}

fn node(metrics: &str) -> Node {
    let url = "http://127.0.0.1:8080".to_owned();
    Node { url, metrics: Ok(Metrics::parse(metrics)), clock_ahead: Some(0.4) }
}

/// Makes a node that served this many requests in this many seconds, some of them in stages.
fn served(requests: u64, seconds: f64, stages: &[(&str, f64)], more: &str) -> Node {
    let mut text = format!(
        "cairn_requests_total{{door=\"http\",verb=\"get\",status=\"2xx\"}} {requests}\n\
         cairn_request_seconds_sum{{door=\"http\",verb=\"get\"}} {seconds}\n"
    );
    for (stage, seconds) in stages {
        text += &format!("cairn_stage_seconds_sum{{door=\"http\",stage=\"{stage}\"}} {seconds}\n");
    }
    node(&(text + more))
}

fn process(program: Program, name: &str) -> Process {
    let (threads, limits) = (BTreeMap::new(), Limits::default());
    Process { program, name: name.to_owned(), threads, cgroup: None, limits }
}

fn look(before: &Sample, after: &Sample) -> Report {
    report(&Pair { before, after })
}

fn kinds(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

fn busy(after: &mut Sample) {
    after.host.busy = 195 * SECONDS;
    after.host.idle = 5 * SECONDS;
}

#[test]
fn nothing_was_asked() {
    let (before, after) = quiet();
    let report = look(&before, &after);
    assert_eq!((kinds(&report), report.limit.kind), (vec![], "none"));
}

#[test]
fn a_healthy_server_is_told_its_limit_and_nothing_else() {
    let (before, mut after) = quiet();
    let kept = "cairn_connections_accepted_total 10\ncairn_cache_hits_total 90000\n\
                cairn_cache_limit_bytes 67108864\ncairn_meta_batches_total 1000\n\
                cairn_meta_commit_seconds_total 0.4\n";
    after.nodes = vec![served(90_000, 3.0, &[("cache", 1.0), ("meta", 1.0)], kept)];
    assert_eq!(
        (kinds(&look(&before, &after)), look(&before, &after).limit.kind),
        (vec![], "client")
    );
    busy(&mut after);
    assert_eq!((kinds(&look(&before, &after)), look(&before, &after).limit.kind), (vec![], "cpu"));
    let (before, mut after) = quiet();
    after.nodes = vec![served(9_000, 90.0, &[("sync", 70.0), ("write", 10.0)], kept)];
    let report = look(&before, &after);
    assert_eq!((kinds(&report), report.limit.kind), (vec![], "disk"));
}

#[test]
fn a_quota_goes_before_what_it_causes() {
    let (mut before, mut after) = quiet();
    let cgroup = |periods, throttled| Cgroup {
        path: "/cpu/small".into(),
        periods,
        throttled,
        throttled_time: Duration::from_millis(throttled * 80),
        quota_millicores: Some(200),
    };
    for (program, kind) in
        [(Program::Cairn, "cpu quota"), (Program::Postgres, "cpu quota of postgresql")]
    {
        let with = |periods, throttled| {
            let one = process(program, "some");
            Process { cgroup: Some(cgroup(periods, throttled)), ..one }
        };
        before.processes = BTreeMap::from([(7, with(100, 3))]);
        after.processes = BTreeMap::from([(7, with(200, 93))]);
        let slow = "cairn_meta_batches_total 10\ncairn_meta_commit_seconds_total 0.9\n";
        after.nodes = vec![served(100, 90.0, &[("sync", 88.0)], slow)];
        let report = look(&before, &after);
        assert_eq!(report.findings[0].kind, kind);
        assert_eq!(report.findings[0].cost_percent.round(), 90.0);
        assert!(report.findings[0].what.contains("0.20 cores"));
        // As it was before: it is not stopped.
        after.processes = before.processes.clone();
        assert_eq!(kinds(&look(&before, &after)), ["slow disk"]);
    }
}

#[test]
fn a_server_elsewhere_says_that_a_quota_stops_it() {
    let (mut before, mut after) = quiet();
    let says = |periods, throttled| {
        let text = format!(
            "cairn_cpu_periods_total {periods}\ncairn_cpu_throttled_periods_total {throttled}\n\
             cairn_cpu_throttled_seconds_total 4.5\n"
        );
        vec![node(&text)]
    };
    (before.nodes, after.nodes) = (says(1000, 10), says(1100, 70));
    let report = look(&before, &after);
    assert_eq!(kinds(&report), ["cpu quota"]);
    assert_eq!(report.findings[0].cost_percent.round(), 60.0);
    assert!(report.findings[0].what.contains("http://127.0.0.1:8080"));
    // Its process is here: that is said once.
    let with = |periods, throttled| {
        let cgroup = Cgroup { periods, throttled, path: "/a".into(), ..Cgroup::default() };
        BTreeMap::from([(7, Process { cgroup: Some(cgroup), ..process(Program::Cairn, "a") })])
    };
    (before.processes, after.processes) = (with(1000, 10), with(1101, 70));
    assert_eq!(kinds(&look(&before, &after)), ["cpu quota"]);
    (before.processes, after.processes) = (BTreeMap::new(), BTreeMap::new());
    after.nodes = says(1100, 10);
    assert!(kinds(&look(&before, &after)).is_empty());
}

#[test]
fn a_disk_is_slow_if_a_sync_is() {
    let (mut before, mut after) = quiet();
    let commits = "cairn_meta_batches_total 100\ncairn_meta_commit_seconds_total 6\n";
    after.nodes = vec![served(200, 40.0, &[("sync", 30.0), ("meta", 5.0)], commits)];
    before.host.disks = BTreeMap::from([("vda".into(), DiskTimes::default())]);
    let times = DiskTimes { busy_ms: 9_500, writes: 100, writes_ms: 6_000, ..DiskTimes::default() };
    after.host.disks = BTreeMap::from([("vda".into(), times)]);
    let report = look(&before, &after);
    assert_eq!(kinds(&report), ["slow disk"]);
    assert_eq!(report.findings[0].cost_percent.round(), 75.0);
    assert!(report.findings[0].evidence[2].contains("vda: in use 95 %"), "{report:?}");
}

/// A gateway's counters of a node: how many, and seconds.
fn peer(node: &str, what: &str, count: u64, seconds: f64) -> String {
    let labels = format!("{{node=\"{node}\",what=\"{what}\"}}");
    format!(
        "cairn_peer_requests_total{labels} {count}\ncairn_peer_seconds_total{labels} {seconds}\n"
    )
}

#[test]
fn a_replica_is_slow_if_others_of_its_blocks_are_not() {
    let (before, mut after) = quiet();
    let mut with = |seconds: [f64; 3]| {
        let nodes = ["2", "a", "1f"].iter().zip(seconds);
        let peers: String = nodes.map(|(node, took)| peer(node, "write", 100, took)).collect();
        let limit = "cairn_peer_connections_limit 256\n";
        after.nodes = vec![served(100, 40.0, &[("peer", 30.0)], &(peers + limit))];
        look(&before, &after)
    };
    let report = with([0.5, 20.5, 0.6]);
    assert_eq!(kinds(&report), ["slow replica"]);
    let found = &report.findings[0];
    assert!(found.what.contains("node a "), "{found:?}");
    assert!(found.evidence[0].contains("205.0 ms on average, of others 5.0 ms"), "{found:?}");
    assert_eq!(found.cost_percent.round(), 50.0);
    // More than all that requests waited for it cannot cost: blocks of one are written at once.
    assert_eq!(with([0.5, 300.0, 0.6]).findings[0].cost_percent.round(), 75.0);
    assert_eq!(kinds(&with([0.5, 20.0, 18.0])), ["slow replica", "slow replica"]);
    // All of them: that is no replica. Slower, but not slow.
    let report = with([20.0, 21.0, 19.0]);
    assert_eq!((kinds(&report), report.limit.kind), (vec![], "disk"));
    assert_eq!(kinds(&with([0.1, 0.9, 0.1])), Vec::<&str>::new());
}

#[test]
fn requests_that_wait_for_a_connection() {
    let (before, mut after) = quiet();
    let mut with = |limit: u64, waits: u64| {
        let peers = peer("2", "read", 500, 5.0) + &peer("2", "wait", waits, 25.0);
        let limit = format!("cairn_peer_connections_limit {limit}\n");
        after.nodes = vec![served(500, 40.0, &[("peer", 30.0)], &(peers + &limit))];
        look(&before, &after)
    };
    let report = with(1, 450);
    assert_eq!(kinds(&report), ["few connections"]);
    assert_eq!(report.findings[0].cost_percent.round(), 63.0);
    assert!(report.findings[0].what.contains("1 connection to"), "{report:?}");
    assert!(report.findings[0].remedy.contains("--peer-connections"));
    // They wait for what is behind so many, or seldom.
    assert_eq!(kinds(&with(256, 450)), Vec::<&str>::new());
    let report = with(1, 20);
    assert_eq!((kinds(&report), report.limit.kind), (vec![], "server"));
}

#[test]
fn connections_are_not_kept_or_handshakes_are_full() {
    let (before, mut after) = quiet();
    after.nodes = vec![served(5_000, 0.2, &[], "cairn_connections_accepted_total 5000\n")];
    let proxy = BTreeMap::from([(9, process(Program::Proxy, "nginx"))]);
    let mut before = before;
    (before.processes, after.processes) = (proxy.clone(), proxy);
    let report = look(&before, &after);
    assert_eq!(kinds(&report), ["connections not kept"]);
    assert!(report.findings[0].remedy.contains("nginx"));
    let tls = "cairn_connections_accepted_total 5000\ncairn_tls_full_total 5000\n\
               cairn_tls_seconds_total 9\n";
    after.nodes = vec![served(5_000, 0.2, &[], tls)];
    assert_eq!(kinds(&look(&before, &after)), ["full tls handshakes", "connections not kept"]);
    let resumed = tls.replace("tls_full", "tls_resumed");
    after.nodes = vec![served(50_000, 0.2, &[], &resumed)];
    assert_eq!(kinds(&look(&before, &after)), Vec::<&str>::new());
}

#[test]
fn caches_that_do_not_hold_what_is_asked_for() {
    let (before, mut after) = quiet();
    let cache = |again: u64, limit: u64| {
        format!(
            "cairn_cache_hits_total 10\ncairn_cache_misses_total 990\ncairn_cache_bytes {limit}\n\
             cairn_cache_limit_bytes {limit}\ncairn_cache_misses_again_total {again}\n"
        )
    };
    let mut with = |again, limit| {
        after.nodes = vec![served(1000, 10.0, &[("peer", 8.0)], &cache(again, limit))];
        look(&before, &after)
    };
    assert!(with(900, 0).findings[0].what.contains("switched off"));
    assert!(with(900, 1000).findings[0].what.contains("too small"));
    // It is full, but these were first reads.
    assert_eq!(kinds(&with(100, 1000)), Vec::<&str>::new());
    let calls = "cairn_session_calls_total 2000\ncairn_session_reads_asked_total 2000\n";
    after.nodes = vec![served(1000, 10.0, &[("meta", 9.0)], calls)];
    assert_eq!(kinds(&look(&before, &after)), ["metadata cache"]);
}

#[test]
fn a_cache_that_is_too_small_is_given_what_memory_there_is() {
    let (before, mut after) = quiet();
    const MIB: u64 = 1 << 20;
    let mut with = |used_mib: u64| {
        let text = format!(
            "cairn_cache_hits_total 10\ncairn_cache_misses_total 990\n\
             cairn_cache_misses_again_total 900\ncairn_cache_limit_bytes {}\n\
             cairn_memory_limit_bytes {}\nprocess_resident_memory_bytes {}\n",
            100 * MIB,
            1000 * MIB,
            used_mib * MIB
        );
        after.nodes = vec![served(1000, 10.0, &[("read", 8.0)], &text)];
        look(&before, &after).findings.remove(0).remedy
    };
    // Twice as much; then as much as leaves a quarter of the memory.
    assert!(with(200).ends_with("--cache-mib 200"), "{}", with(200));
    assert!(with(670).ends_with("--cache-mib 180"), "{}", with(670));
    let none = with(700);
    assert!(none.contains("700 MiB of the 1000 MiB") && none.contains("more memory"), "{none}");
}

#[test]
fn a_cache_of_rows_is_named_by_its_option_and_only_if_it_is_full() {
    let (before, mut after) = quiet();
    let mut with = |part: &str, used: &str, calls: &str, share: u64| {
        let text = format!(
            "cairn_memory_part_limit_bytes{{part=\"{part}\"}} 1000\n{used} {}\n{calls} 2000\n",
            share * 10
        );
        after.nodes = vec![served(1000, 10.0, &[("meta", 9.0)], &text)];
        look(&before, &after).findings.first().map(|found| (found.kind, found.remedy.clone()))
    };
    let mut of_server =
        |share| with("rows", "cairn_meta_cache_bytes", "cairn_meta_reads_missed_total", share);
    let (kind, remedy) = of_server(95).unwrap();
    assert!(kind == "metadata cache" && remedy.contains("--row-cache-mib"), "{kind}: {remedy}");
    assert_eq!(of_server(50), None);
    let mut of_gateway = |share| {
        with("leased-rows", "cairn_session_bytes", "cairn_session_reads_asked_total", share)
    };
    assert!(of_gateway(95).unwrap().1.contains("--meta-cache-mib"));
    assert!(of_gateway(50).unwrap().1.contains("through the same gateway"));
}

#[test]
fn one_thread_at_its_end() {
    let (mut before, mut after) = quiet();
    after.host.busy = 100 * SECONDS;
    after.host.idle = 100 * SECONDS;
    let mut ran = |seconds| {
        let thread = |running| Thread {
            name: "meta-execute".into(),
            running: Duration::from_secs_f64(running),
            waiting: Duration::ZERO,
        };
        let with = |running| {
            let one = process(Program::Cairn, "cairn");
            Process { threads: BTreeMap::from([(7, thread(running))]), ..one }
        };
        before.processes = BTreeMap::from([(7, with(1.0))]);
        after.processes = BTreeMap::from([(7, with(1.0 + seconds))]);
        look(&before, &after)
    };
    assert_eq!(kinds(&ran(9.8)), ["one thread"]);
    assert_eq!(kinds(&ran(5.0)), Vec::<&str>::new());
}

#[test]
fn a_mount_with_fewer_readers_than_cores() {
    let (mut before, mut after) = quiet();
    busy(&mut after);
    let thread = |name: &str, running: f64, waiting: f64| Thread {
        name: name.into(),
        running: Duration::from_secs_f64(running),
        waiting: Duration::from_secs_f64(waiting),
    };
    let mut did = |threads: &[(&str, f64, f64)]| {
        let with = |times: f64| {
            let numbered = (7..).zip(threads);
            let all = numbered.map(|(id, (name, running, waiting))| {
                (id, thread(name, 1.0 + running * times, 1.0 + waiting * times))
            });
            Process { threads: all.collect(), ..process(Program::Cairn, "cairn") }
        };
        before.processes = BTreeMap::from([(7, with(0.0))]);
        after.processes = BTreeMap::from([(7, with(1.0))]);
        look(&before, &after)
    };
    // It shares the cores with those who ask it.
    let report = did(&[("fuser-0", 6.0, 3.5), ("cairn-requests", 0.1, 0.1)]);
    assert_eq!(kinds(&report), ["one thread"]);
    let evidence = &report.findings[0].evidence[0];
    assert!(evidence.contains("ran 60 % of the time and waited for a core 35 %"), "{evidence}");
    assert!(report.findings[0].remedy.contains("--threads"));
    assert_eq!(kinds(&did(&[("fuser-0", 5.0, 1.0)])), Vec::<&str>::new());
    // As many as cores; another thread than one of these.
    let both = [("fuser-0", 6.0, 3.5), ("fuser-1", 6.0, 3.5)];
    assert_eq!(kinds(&did(&both)), Vec::<&str>::new());
    assert_eq!(kinds(&did(&[("meta-execute", 6.0, 3.5)])), Vec::<&str>::new());
}

#[test]
fn the_limit_of_a_mount_is_what_it_waits_for() {
    let (before, mut after) = quiet();
    let mount = |mean_us: u64| Node {
        url: "/mnt/cairn".into(),
        metrics: Ok(Metrics::of_mount(&format!("read 9000 {mean_us} 1 1 meta 5 peer {mean_us}\n"))),
        clock_ahead: None,
    };
    after.nodes = vec![mount(4_000)];
    let mut before = before;
    before.nodes = vec![Node { metrics: Ok(Metrics::default()), ..mount(0) }];
    let report = look(&before, &after);
    assert_eq!((kinds(&report), report.limit.kind, report.requests), (vec![], "server", 9000.0));
    after.nodes = vec![mount(40)];
    assert_eq!(look(&before, &after).limit.kind, "client");
    busy(&mut after);
    assert_eq!(look(&before, &after).limit.kind, "cpu");
}

#[test]
fn threads_that_wait_for_a_core_are_told_beside_the_limit() {
    let (mut before, mut after) = quiet();
    busy(&mut after);
    after.nodes = vec![served(9_000, 3.0, &[], "")];
    let with = |waiting| {
        let waiting = Duration::from_secs(waiting);
        let thread = Thread { name: "tokio".into(), waiting, ..Thread::default() };
        let threads = BTreeMap::from([(7, thread.clone()), (8, thread)]);
        BTreeMap::from([(7, Process { threads, ..process(Program::Cairn, "cairn") })])
    };
    (before.processes, after.processes) = (with(1), with(8));
    let limit = look(&before, &after).limit;
    assert!(limit.what.contains("1.4 threads of Cairn wait for a core"), "{limit:?}");
}

#[test]
fn the_network_and_clocks() {
    let (before, mut after) = quiet();
    (after.host.segments_sent, after.host.segments_resent) = (10_000, 300);
    after.nodes = vec![served(1000, 20.0, &[], "")];
    assert_eq!(kinds(&look(&before, &after)), ["packet loss"]);
    after.host.segments_resent = 30;
    assert_eq!(kinds(&look(&before, &after)), Vec::<&str>::new());
    after.nodes[0].clock_ahead = Some(-90.0);
    assert_eq!(kinds(&look(&before, &after)), ["clock skew"]);
}

#[test]
fn limits_that_are_near() {
    let (before, mut after) = quiet();
    let limits = Limits {
        files: 1000,
        files_limit: Some(1024),
        memory_bytes: 95,
        memory_limit_bytes: Some(100),
    };
    let one = Process { limits, ..process(Program::Cairn, "cairn") };
    after.processes = BTreeMap::from([(7, one)]);
    assert_eq!(kinds(&look(&before, &after)), ["file descriptors", "memory limit"]);
    after.processes.get_mut(&7).unwrap().program = Program::Postgres;
    assert_eq!(kinds(&look(&before, &after)), Vec::<&str>::new());
}

#[test]
fn a_cluster_out_of_balance() {
    let (before, mut after) = quiet();
    let store = |node: &str, gib: u64| Store {
        node: node.into(),
        up: true,
        live_bytes: gib << 30,
        free_bytes: 1 << 40,
        weight: 1,
        failure: None,
    };
    let mut with = |stores: Vec<Store>, degraded_groups| {
        after.cluster = Some(Cluster { stores, degraded_groups, ..Cluster::default() });
        look(&before, &after)
    };
    assert_eq!(kinds(&with(vec![store("1", 9), store("2", 1)], 0)), ["uneven groups"]);
    assert_eq!(kinds(&with(vec![store("1", 5), store("2", 5)], 0)), Vec::<&str>::new());
    assert_eq!(kinds(&with(vec![store("1", 5), store("2", 5)], 3)), ["degraded"]);
    let gone = Store { up: false, ..store("2", 5) };
    assert_eq!(kinds(&with(vec![store("1", 5), gone], 0)), ["degraded"]);
    let sick = Store { failure: Some("no disk".into()), ..store("2", 5) };
    assert_eq!(kinds(&with(vec![store("1", 5), sick], 0)), ["failing disk"]);
}

#[test]
fn metadata_with_fewer_copies_than_blocks_are_found() {
    let (before, mut after) = quiet();
    for (metadata_copies, replicas, found) in [
        (Some(1), 3, true),
        (Some(2), 3, true),
        (Some(3), 3, false),
        (Some(3), 5, true),
        (Some(1), 1, false),
        (None, 3, false),
    ] {
        let cluster = Cluster { metadata_copies, replicas, ..Cluster::default() };
        after.cluster = Some(cluster);
        let report = look(&before, &after);
        let expected = if found { vec!["few copies"] } else { Vec::new() };
        assert_eq!(kinds(&report), expected, "{metadata_copies:?} of {replicas}");
    }
}

#[test]
fn masters_without_progress_are_found() {
    let (before, mut after) = quiet();
    after.cluster =
        Some(Cluster { stalls: vec!["node 2 has got no entries".into()], ..Cluster::default() });
    let report = look(&before, &after);
    assert_eq!(kinds(&report), ["no progress"]);
    assert_eq!(report.findings[0].evidence, ["node 2 has got no entries"]);
}

#[test]
fn damaged_metadata_are_found() {
    let (before, mut after) = quiet();
    let damage = vec!["the metadata of master 2 are damaged".to_owned()];
    after.cluster = Some(Cluster { damage: damage.clone(), ..Cluster::default() });
    let report = look(&before, &after);
    assert_eq!(kinds(&report), ["damaged metadata"]);
    assert_eq!(report.findings[0].evidence, damage);
}

#[test]
fn what_could_not_be_seen_is_said() {
    let (mut before, after) = quiet();
    before.nodes[0].metrics = Err("connection refused".into());
    let report = look(&before, &after);
    assert!(report.blind[0].contains("connection refused"), "{:?}", report.blind);
}

/// Calls of a procedure of NFS, the seconds that they took, and their bytes.
fn calls(procedures: &[(&str, u64, f64, u64)]) -> Node {
    let one = |(verb, count, seconds, bytes): &(&str, u64, f64, u64)| {
        let labels = format!("door=\"nfs\",verb=\"{verb}\"");
        format!(
            "cairn_requests_total{{{labels},status=\"2xx\"}} {count}\n\
             cairn_request_seconds_sum{{{labels}}} {seconds}\n\
             cairn_received_bytes_total{{{labels}}} {bytes}\n"
        )
    };
    node(&procedures.iter().map(one).collect::<String>())
}

#[test]
fn clients_of_nfs_that_ask_too_much_are_told() {
    let (before, mut after) = quiet();
    for (procedures, found) in [
        (vec![("getattr", 700, 0.7, 0), ("access", 200, 0.2, 0), ("read", 100, 0.1, 0)], true),
        (vec![("getattr", 500, 0.5, 0), ("read", 500, 0.5, 0)], false),
        (vec![("getattr", 900, 0.01, 0), ("read", 100, 0.9, 0)], false),
        (vec![("getattr", 20, 0.7, 0)], false),
    ] {
        after.nodes = vec![calls(&procedures)];
        let report = look(&before, &after);
        assert_eq!(kinds(&report).contains(&"nfs attributes"), found, "{procedures:?}");
    }
}

#[test]
fn clients_of_nfs_with_one_full_connection_are_told() {
    let (before, mut after) = quiet();
    for (clients, connections, full_seconds, found) in
        [(3, 3, 6.0, true), (3, 12, 60.0, false), (3, 3, 0.1, false), (0, 0, 0.0, false)]
    {
        after.nodes = vec![node(&format!(
            "cairn_nfs_clients {clients}\n\
             cairn_nfs_connections {connections}\n\
             cairn_nfs_full_seconds_total {full_seconds}\n"
        ))];
        let report = look(&before, &after);
        assert_eq!(kinds(&report).contains(&"nfs few connections"), found, "{connections}");
    }
}

#[test]
fn small_writes_over_nfs_that_are_synced_are_told() {
    let (before, mut after) = quiet();
    for (procedures, found) in [
        (vec![("write", 200, 0.1, 200 * 600), ("commit", 200, 0.8, 0)], true),
        (vec![("write", 200, 0.1, 200 << 20), ("commit", 200, 0.8, 0)], false),
        (vec![("write", 200, 0.1, 200 * 600), ("commit", 2, 0.8, 0)], false),
        (vec![("write", 20, 0.1, 20 * 600), ("commit", 20, 0.8, 0)], false),
    ] {
        after.nodes = vec![calls(&procedures)];
        let report = look(&before, &after);
        assert_eq!(kinds(&report).contains(&"nfs small writes"), found, "{procedures:?}");
    }
}
