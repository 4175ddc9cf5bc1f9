//! The same on SQLite and on PostgreSQL.

use super::testing::stores;
use super::*;

fn paging(after: Option<&str>, limit: usize) -> Paging {
    Paging { after: after.map(str::to_owned), limit }
}

fn query(after: Option<&str>, limit: usize) -> FileQuery {
    FileQuery { paging: paging(after, limit), oldest_first: false, purpose: None, owner: None, now_ms: 0 }
}

async fn upload(store: &Store, id: &str, created_ms: i64, parts: &[&str]) {
    let file = NewFile { id: id.into(), created_ms, filename: "in.jsonl".into(), owner: None };
    store.begin_file(&file).await.unwrap();
    for (part, content) in parts.iter().enumerate() {
        store.add_part(id, part as i64, content).await.unwrap();
    }
    let bytes = parts.iter().map(|part| part.len() as i64).sum();
    store.finish_file(id, "batch", bytes, None).await.unwrap();
}

async fn content(store: &Store, id: &str) -> String {
    let file = store.file(id, 0).await.unwrap().expect("it is there");
    let (mut all, mut at) = (String::new(), -1);
    while let Some(part) = store.part(&file, at).await.unwrap() {
        all.push_str(&part.content);
        at = part.at;
    }
    assert_eq!(all.len() as i64, file.bytes);
    all
}

fn batch(id: &str, created_ms: i64) -> NewBatch {
    NewBatch {
        id: id.into(),
        created_ms,
        endpoint: "/v1/completions".into(),
        owner: None,
        input_file_id: "file-a".into(),
        completion_window: "24h".into(),
        expires_ms: created_ms + 1_000,
        output_expires_s: Some(3_600),
        metadata: Some("{\"a\":\"ü\"}".into()),
    }
}

fn item(line: i64) -> NewItem {
    NewItem { line, custom_id: format!("c{line}"), request: format!("{{\"prompt\":\"{line}\"}}") }
}

fn finished(batch: &str, line: i64, outcome: Outcome, answer: &str) -> FinishedItem {
    FinishedItem { batch: batch.into(), line, outcome, answer: answer.into() }
}

#[tokio::test]
async fn files_come_in_parts_and_are_seen_whole() {
    for (store, _folder) in stores().await {
        let file = NewFile { id: "file-a".into(), created_ms: 5, filename: "../ü\n".into(), owner: None };
        store.begin_file(&file).await.unwrap();
        store.add_part("file-a", 0, "{\"ü\"}\n").await.unwrap();
        assert_eq!(store.file("file-a", 0).await.unwrap(), None, "not before it is whole");
        assert_eq!(store.files(&query(None, 10)).await.unwrap().unwrap().data, []);
        store.add_part("file-a", 1, "last").await.unwrap();
        store.finish_file("file-a", "batch", 11, Some(100)).await.unwrap();
        let file = store.file("file-a", 99).await.unwrap().unwrap();
        assert_eq!((file.filename.as_str(), file.origin, file.expires_ms), ("../ü\n", Origin::Uploaded, Some(100)));
        assert_eq!(content(&store, "file-a").await, "{\"ü\"}\nlast");
        assert_eq!(store.file("file-a", 100).await.unwrap(), None, "its time is over");
        assert!(store.delete_file("file-a").await.unwrap() && !store.delete_file("file-a").await.unwrap());
        assert!(
            store.part(&FileObject { origin: Origin::Uploaded, ..store_file("file-a") }, -1).await.unwrap().is_none()
        );
    }
}

fn store_file(id: &str) -> FileObject {
    FileObject {
        id: id.into(),
        created_ms: 0,
        expires_ms: None,
        purpose: "batch".into(),
        filename: String::new(),
        bytes: 0,
        owner: None,
        origin: Origin::Uploaded,
    }
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    for (store, _folder) in stores().await {
        // Two in the same millisecond.
        for (id, at) in [("file-a", 1), ("file-b", 2), ("file-c", 2), ("file-d", 3)] {
            upload(&store, id, at, &["x"]).await;
        }
        let ids = |page: Option<Page<FileObject>>| {
            let page = page.unwrap();
            (page.data.into_iter().map(|file| file.id).collect::<Vec<_>>(), page.has_more)
        };
        let all = ids(store.files(&query(None, 4)).await.unwrap());
        assert_eq!(all, (["file-d", "file-c", "file-b", "file-a"].map(str::to_owned).to_vec(), false));
        let mut seen = Vec::new();
        loop {
            let page = ids(store.files(&query(seen.last().map(String::as_str), 1)).await.unwrap());
            seen.extend(page.0);
            if !page.1 {
                break;
            }
        }
        assert_eq!(seen, all.0);
        let oldest = FileQuery { oldest_first: true, ..query(Some("file-b"), 9) };
        assert_eq!(ids(store.files(&oldest).await.unwrap()).0, ["file-c", "file-d"]);
        let other = FileQuery { purpose: Some("x' OR '1'='1".into()), ..query(None, 9) };
        assert_eq!(ids(store.files(&other).await.unwrap()).0, Vec::<String>::new());
        assert_eq!(store.files(&query(Some("file-x"), 1)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_line_is_answered_once_and_counted_once() {
    for (store, _folder) in stores().await {
        store.create_batch(&batch("batch_a", 1)).await.unwrap();
        store.add_items("batch_a", &[item(1), item(2), item(3)]).await.unwrap();
        store.add_items("batch_a", &[item(3), item(4)]).await.unwrap();
        store.start_batch("batch_a", 4, 10).await.unwrap();
        assert_eq!(store.open_items("batch_a", 1, 2).await.unwrap(), [item(2), item(3)]);
        let first =
            [finished("batch_a", 1, Outcome::Completed, "one"), finished("batch_a", 3, Outcome::Failed, "three")];
        store.finish_items(&first).await.unwrap();
        let again =
            [finished("batch_a", 1, Outcome::Failed, "other"), finished("batch_a", 4, Outcome::Completed, "fôur")];
        store.finish_items(&again).await.unwrap();
        let counted = store.batch("batch_a").await.unwrap().unwrap();
        assert_eq!((counted.total, counted.completed, counted.failed), (4, 2, 1));
        assert_eq!(store.open_items("batch_a", 0, 9).await.unwrap(), [item(2)]);
        store.finish_items(&[finished("batch_a", 2, Outcome::Completed, "two")]).await.unwrap();

        store.finalize_batch("batch_a", 20).await.unwrap();
        let finalizing = store.batch("batch_a").await.unwrap().unwrap();
        store.close_batch(&finalizing, BatchStatus::Completed, 30).await.unwrap();
        store.close_batch(&finalizing, BatchStatus::Completed, 40).await.unwrap();
        let over = store.batch("batch_a").await.unwrap().unwrap();
        assert_eq!((over.status, over.completed_ms), (BatchStatus::Completed, Some(30)));
        assert_eq!(content(&store, over.output_file_id.as_deref().unwrap()).await, "one\ntwo\nfôur\n");
        assert_eq!(content(&store, over.error_file_id.as_deref().unwrap()).await, "three\n");
        let files = store.files(&query(None, 9)).await.unwrap().unwrap().data;
        assert_eq!(files.len(), 2, "closing twice makes no more files");
        assert!(files.iter().all(|file| file.expires_ms == Some(30 + 3_600_000)));
        store.sweep_files(0, 30 + 3_600_000).await.unwrap();
        assert_eq!(store.files(&query(None, 9)).await.unwrap().unwrap().data, []);
    }
}

#[tokio::test]
async fn batches_move_only_where_they_may() {
    for (store, _folder) in stores().await {
        let status = async |id: &str| store.batch(id).await.unwrap().unwrap().status;
        store.create_batch(&batch("batch_a", 1)).await.unwrap();
        store.finalize_batch("batch_a", 2).await.unwrap();
        assert_eq!(status("batch_a").await, BatchStatus::Validating);
        assert!(store.cancel_batch("batch_a", 3).await.unwrap() && !store.cancel_batch("batch_a", 4).await.unwrap());
        store.start_batch("batch_a", 1, 5).await.unwrap();
        store.fail_batch("batch_a", "{}", 6).await.unwrap();
        assert_eq!(status("batch_a").await, BatchStatus::Cancelling);
        let cancelling = store.batch("batch_a").await.unwrap().unwrap();
        store.close_batch(&cancelling, BatchStatus::Completed, 7).await.unwrap();
        assert_eq!(status("batch_a").await, BatchStatus::Cancelling);
        store.close_batch(&cancelling, BatchStatus::Cancelled, 8).await.unwrap();
        let over = store.batch("batch_a").await.unwrap().unwrap();
        assert_eq!((over.status, over.cancelling_ms, over.cancelled_ms), (BatchStatus::Cancelled, Some(3), Some(8)));
        assert_eq!((over.metadata.as_deref(), over.output_file_id), (Some("{\"a\":\"ü\"}"), None));

        store.create_batch(&batch("batch_b", 1)).await.unwrap();
        store.add_items("batch_b", &[item(1)]).await.unwrap();
        store.fail_batch("batch_b", "{\"data\":[]}", 9).await.unwrap();
        assert_eq!(status("batch_b").await, BatchStatus::Failed);
        assert_eq!(store.open_items("batch_b", 0, 9).await.unwrap(), []);
        store.create_batch(&batch("batch_c", 1)).await.unwrap();
        let open: Vec<String> = store.open_batches().await.unwrap().into_iter().map(|batch| batch.id).collect();
        assert_eq!(open, ["batch_c"]);
        let page = store.batches(&paging(Some("batch_c"), 1), None).await.unwrap().unwrap();
        assert_eq!((page.data[0].id.as_str(), page.has_more), ("batch_b", true));
        assert_eq!(store.batches(&paging(Some("batch_x"), 1), None).await.unwrap(), None);
        assert_eq!(store.batch("batch_x").await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_operators_changes_are_kept_in_order() {
    for (store, _folder) in stores().await {
        let entry = |at, to: &str| AuditEntry::new(at, "me at 127.0.0.1:1", "policy", "fair", to);
        let entries = [entry(1, "latency_first"), entry(2, "throughput_first"), entry(3, "fair")];
        store.record(&entries).await.unwrap();
        let first = store.audit(&paging(None, 2)).await.unwrap().unwrap();
        assert_eq!((first.data.as_slice(), first.has_more), (&[entries[2].clone(), entries[1].clone()][..], true));
        let rest = store.audit(&paging(Some(&entries[1].id), 2)).await.unwrap().unwrap();
        assert_eq!((rest.data.as_slice(), rest.has_more), (&entries[..1], false));
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { location: Location::File(folder.path().join("x.db")), max_mib: None };
    let store = Store::new(config.clone());
    upload(&store, "file-a", 1, &["one\n"]).await;
    let second = Store::new(config.clone()).open().await.unwrap_err().to_string();
    assert!(second.contains(&format!("process {} uses it", std::process::id())), "{second}");
    // As if the process had been killed: nothing is closed, the lock goes with the last handle.
    drop(store);
    let store = Store::new(config);
    assert_eq!(content(&store, "file-a").await, "one\n");
}

#[tokio::test]
async fn a_full_store_keeps_what_it_has_and_takes_more_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(Config { location: Location::File(folder.path().join("x.db")), max_mib: Some(1) });
    upload(&store, "file-a", 1, &["kept\n"]).await;
    let file = NewFile { id: "file-b".into(), created_ms: 1, filename: String::new(), owner: None };
    store.begin_file(&file).await.unwrap();
    let large = "x".repeat(200 << 10);
    let mut part = 0;
    let refused = loop {
        match store.add_part("file-b", part, &large).await {
            Ok(()) => part += 1,
            Err(error) => break error,
        }
        assert!(part < 6, "a MiB holds no more");
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    assert_eq!(content(&store, "file-a").await, "kept\n");
    assert!(store.delete_file("file-b").await.unwrap());
    upload(&store, "file-c", 2, &[&large]).await;
    assert_eq!(content(&store, "file-c").await.len(), large.len());
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let config = Config { location: Location::File("/nowhere/x.db".into()), max_mib: None };
    let error = Store::new(config).open().await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/x.db") && error.contains("store.url"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    std::fs::write(&path, "this is no database, but long enough to be read as one".repeat(50)).unwrap();
    let error = Store::new(Config { location: Location::File(path), max_mib: None }).open().await.unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
}

#[tokio::test]
async fn one_of_several_servers_leads() {
    let Some(location) = super::testing::postgres().await else {
        println!("skipped: FOREBAY_TEST_POSTGRES is not set");
        return;
    };
    let config = Config { location, max_mib: None };
    let (one, other) = (Store::new(config.clone()), Store::new(config));
    let mut lead = one.lead().await.unwrap().expect("nobody else is there");
    assert!(other.lead().await.unwrap().is_none() && lead.holds().await);
    drop(lead);
    // The server notices the closed connection in its own time.
    let mut taken = None;
    while taken.is_none() {
        taken = other.lead().await.unwrap();
    }
}

#[tokio::test]
async fn usage_adds_up_once_for_each_write() {
    for (store, _folder) in stores().await {
        let row = |key: &str, day, route: &str, prompt_tokens| UsageRow {
            key_id: Some(key.into()),
            day: Some(day),
            route: Some(route.into()),
            model: Some("m".into()),
            sum: UsageSum { requests: 1, prompt_tokens, cached_tokens: 1, completion_tokens: 2 },
        };
        let sum = |requests, prompt_tokens| UsageSum {
            requests,
            prompt_tokens,
            cached_tokens: requests,
            completion_tokens: 2 * requests,
        };
        store.add_usage("w1", &[row("a", 5, "chat", 10), row("b", 5, "chat", 1)], 0).await.unwrap();
        store.add_usage("w1", &[row("a", 5, "chat", 10)], 1).await.unwrap();
        store.add_usage("w2", &[row("a", 5, "chat", 7), row("a", 6, "embeddings", 4)], 2).await.unwrap();
        let ask = |days, key: Option<&str>, by| {
            let (store, query) = (store.clone(), UsageQuery { days, key_id: key.map(str::to_owned), by });
            async move { store.usage(&query).await.unwrap() }
        };
        let keyed = |key: &str, sum| UsageRow { key_id: Some(key.into()), sum, ..UsageRow::default() };
        let by_key = Grouping { key: true, ..Grouping::default() };
        assert_eq!(ask((0, 9), None, by_key).await, [keyed("a", sum(3, 21)), keyed("b", sum(1, 1))]);
        assert_eq!(ask((6, 9), None, by_key).await, [keyed("a", sum(1, 4))]);
        let day = |day, sum| UsageRow { day: Some(day), sum, ..UsageRow::default() };
        let by_day = Grouping { day: true, ..Grouping::default() };
        assert_eq!(ask((0, 9), Some("a"), by_day).await, [day(5, sum(2, 17)), day(6, sum(1, 4))]);
        let nothing = UsageRow::default();
        assert_eq!(ask((7, 9), None, Grouping::default()).await, [nothing]);
        // A claim is forgotten after a day.
        store.add_usage("w3", &[row("b", 6, "chat", 1)], 86_400_003).await.unwrap();
        store.add_usage("w1", &[row("b", 6, "chat", 1)], 86_400_003).await.unwrap();
        assert_eq!(ask((6, 6), Some("b"), by_key).await, [keyed("b", sum(2, 2))]);
        assert_eq!(store.tokens_since(0).await.unwrap().len(), 0, "no key has a monthly limit");
    }
}

#[tokio::test]
async fn files_and_batches_are_their_owners() {
    for (store, _folder) in stores().await {
        let owned = |id: &str, owner: Option<&str>| NewFile {
            id: id.into(),
            created_ms: 1,
            filename: String::new(),
            owner: owner.map(str::to_owned),
        };
        for (id, owner) in [("file-a", Some("key_a")), ("file-b", Some("key_b")), ("file-c", None)] {
            store.begin_file(&owned(id, owner)).await.unwrap();
            store.add_part(id, 0, "x").await.unwrap();
            store.finish_file(id, "batch", 1, None).await.unwrap();
        }
        let ids = |owner: Option<&str>| {
            let query = FileQuery { owner: owner.map(str::to_owned), ..query(None, 9) };
            let store = store.clone();
            async move {
                let page = store.files(&query).await.unwrap().unwrap();
                page.data.into_iter().map(|file| file.id).collect::<Vec<_>>()
            }
        };
        assert_eq!(ids(Some("key_a")).await, ["file-a"]);
        assert_eq!(ids(None).await, ["file-c", "file-b", "file-a"]);
        assert_eq!(store.file("file-b", 0).await.unwrap().unwrap().owner.as_deref(), Some("key_b"));

        let mine = NewBatch { owner: Some("key_a".into()), ..batch("batch_a", 1) };
        store.create_batch(&mine).await.unwrap();
        store.create_batch(&batch("batch_b", 2)).await.unwrap();
        let listed = store.batches(&paging(None, 9), Some("key_a")).await.unwrap().unwrap().data;
        assert_eq!(listed.iter().map(|batch| batch.id.as_str()).collect::<Vec<_>>(), ["batch_a"]);
        assert_eq!(store.batches(&paging(None, 9), None).await.unwrap().unwrap().data.len(), 2);
        // What a batch writes is its owner's.
        store.add_items("batch_a", &[item(1)]).await.unwrap();
        store.start_batch("batch_a", 1, 2).await.unwrap();
        store.finish_items(&[finished("batch_a", 1, Outcome::Completed, "{}")]).await.unwrap();
        store.finalize_batch("batch_a", 3).await.unwrap();
        let whole = store.batch("batch_a").await.unwrap().unwrap();
        assert_eq!(whole.owner.as_deref(), Some("key_a"));
        store.close_batch(&whole, BatchStatus::Completed, 4).await.unwrap();
        let output = store.batch("batch_a").await.unwrap().unwrap().output_file_id.unwrap();
        assert_eq!(store.file(&output, 4).await.unwrap().unwrap().owner.as_deref(), Some("key_a"));
    }
}

#[tokio::test]
async fn commands_work_beside_a_server_and_see_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { location: Location::File(folder.path().join("x.db")), max_mib: None };
    let server = Store::new(config.clone());
    let states = |steps: Vec<Step>| steps.into_iter().map(|step| step.state).collect::<Vec<_>>();
    // Before the first start.
    let reader = Store::reader(config.clone());
    let known = migrations::names().count();
    assert_eq!(states(reader.schema().await.unwrap().0), vec![SchemaState::Pending; known]);
    reader.close().await;
    server.open().await.unwrap();
    let command = Store::beside(config.clone());
    command.record(&[AuditEntry::new(1, "a", "b", "", "")]).await.unwrap();
    assert_eq!(server.audit(&paging(None, 9)).await.unwrap().unwrap().data.len(), 1);
    for (store, _folder) in stores().await {
        let (steps, newer) = store.schema().await.unwrap();
        assert_eq!((states(steps), newer), (vec![SchemaState::Applied; known], vec![]));
    }
}
