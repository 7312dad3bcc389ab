-- Version 2: subscriptions with a reception period, and what waits for the end of one.

ALTER TABLE subscription ADD COLUMN period INTEGER NOT NULL DEFAULT 0;  -- units of 10 ms
ALTER TABLE subscription ADD COLUMN repeats_names INTEGER NOT NULL DEFAULT 0;

CREATE TABLE paced (
    client_id  TEXT NOT NULL,
    label      TEXT NOT NULL,  -- '' for the plain subscriptions that match; the group or the operators of any other
    topic      TEXT NOT NULL,
    payload    BLOB NOT NULL,
    qos        INTEGER NOT NULL,
    retain     INTEGER NOT NULL,
    publisher  TEXT NOT NULL,
    expires_at REAL,
    properties TEXT,
    PRIMARY KEY (client_id, label, topic)
);
