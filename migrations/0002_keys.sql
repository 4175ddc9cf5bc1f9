-- API keys, what each has used, and whose files and batches are.

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    name TEXT NOT NULL,
    -- 'inference', 'admin' or both, with a comma.
    roles TEXT NOT NULL,
    -- HMAC-SHA256 in hexadecimal. The key itself is nowhere.
    digest TEXT NOT NULL,
    -- After a rotation the key before is good until then.
    previous_digest TEXT,
    previous_until_ms BIGINT,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    -- NULL is no limit.
    requests_per_minute BIGINT,
    tokens_per_minute BIGINT,
    tokens_per_month BIGINT,
    concurrency BIGINT,
    priority_ceiling TEXT,
    -- Thousandths.
    weight BIGINT NOT NULL,
    cache_salt TEXT NOT NULL
);

CREATE INDEX api_keys_by_age ON api_keys (created_ms, id);

-- One row, whose number grows with every change of a key: servers read it often, and the keys only when it has grown.
CREATE TABLE api_keys_revision (
    id BIGINT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
);

INSERT INTO api_keys_revision (id, revision) VALUES (1, 0);

CREATE TABLE key_usage (
    key_id TEXT NOT NULL,
    -- Days since 1970, in UTC.
    day BIGINT NOT NULL,
    route TEXT NOT NULL,
    model TEXT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    PRIMARY KEY (key_id, day, route, model)
);

CREATE INDEX key_usage_by_day ON key_usage (day, key_id);

-- What was added to key_usage: something whose acknowledgement was lost is not added again.
CREATE TABLE usage_writes (
    id TEXT NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
);

CREATE INDEX usage_writes_by_age ON usage_writes (at_ms);

ALTER TABLE files ADD COLUMN key_id TEXT;

ALTER TABLE batches ADD COLUMN key_id TEXT;
