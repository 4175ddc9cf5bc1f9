-- What servers were like, a row per minute or so; the newest that are no longer in the process' memory.

CREATE TABLE metric_history (
    -- Which server: its host's name and port. Several may share a database.
    instance TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    -- As in `/metrics/json/history`.
    body TEXT NOT NULL,
    PRIMARY KEY (instance, at_ms)
);
