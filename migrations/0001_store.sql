-- Files, batches and their lines, and who changed what. Ids are text, times are milliseconds since 1970, JSON is text.

CREATE TABLE files (
    id TEXT NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    purpose TEXT NOT NULL,
    filename TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    -- 'uploading' until all of it is here; nobody sees it before.
    status TEXT NOT NULL,
    -- A file that a batch wrote has no parts: it is the answers of the batch's lines with this outcome.
    batch_id TEXT,
    outcome BIGINT
);

CREATE INDEX files_by_age ON files (created_ms, id);

CREATE TABLE file_parts (
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    part BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (file_id, part)
);

CREATE TABLE batches (
    id TEXT NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    status TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    input_file_id TEXT NOT NULL,
    completion_window TEXT NOT NULL,
    expires_ms BIGINT NOT NULL,
    -- Seconds after which the files that it writes expire.
    output_expires_s BIGINT,
    metadata TEXT,
    errors TEXT,
    output_file_id TEXT,
    error_file_id TEXT,
    total BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    in_progress_ms BIGINT,
    finalizing_ms BIGINT,
    completed_ms BIGINT,
    failed_ms BIGINT,
    expired_ms BIGINT,
    cancelling_ms BIGINT,
    cancelled_ms BIGINT
);

CREATE INDEX batches_by_age ON batches (created_ms, id);

CREATE TABLE batch_items (
    batch_id TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    line BIGINT NOT NULL,
    custom_id TEXT NOT NULL,
    -- The body of the request; empty once it is answered.
    request TEXT NOT NULL,
    -- 0 open, 1 completed, 2 failed.
    outcome BIGINT NOT NULL,
    -- The line of the output or error file; empty until then.
    answer TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (batch_id, line)
);

CREATE UNIQUE INDEX batch_items_custom_id ON batch_items (batch_id, custom_id);

CREATE INDEX batch_items_outcome ON batch_items (batch_id, outcome, line);

CREATE TABLE audit (
    id TEXT NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    what TEXT NOT NULL,
    from_value TEXT NOT NULL,
    to_value TEXT NOT NULL
);

CREATE INDEX audit_by_age ON audit (at_ms, id);
