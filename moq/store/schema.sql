-- The schema of broker.db, version 1. Later versions are steps of their own: migrate-0002.sql and so on.
--
-- Times are seconds since 1970, NULL is never. Properties and wills are JSON, bytes in them base64.
-- References are checked at start-up after a crash, not for each row: transactions keep them right, and the check
-- would cost as much as the write.

CREATE TABLE session (
    client_id  TEXT NOT NULL PRIMARY KEY,
    user       TEXT,
    expiry_s   REAL,
    expires_at REAL,
    first_will TEXT,
    final_will TEXT,
    last_will  TEXT  -- the will that is due if the client is lost now
);

CREATE TABLE subscription (
    client_id           TEXT NOT NULL,
    filter              TEXT NOT NULL,
    group_name          TEXT,
    qos                 INTEGER NOT NULL,
    accepts_requests    INTEGER NOT NULL,
    no_local            INTEGER NOT NULL,
    alias               INTEGER NOT NULL,
    priority            INTEGER NOT NULL,
    retain_as_published INTEGER NOT NULL,
    identifier          INTEGER NOT NULL,
    answers_by_topic    INTEGER NOT NULL
);
-- NULLs differ from each other in an index; an empty blob differs from every text and equals itself.
CREATE UNIQUE INDEX subscription_key ON subscription (client_id, filter, ifnull(group_name, x''));

CREATE TABLE registration (
    client_id TEXT NOT NULL,
    filter    TEXT NOT NULL,
    mode      INTEGER NOT NULL,
    expiry_s  INTEGER,
    alias     INTEGER NOT NULL,
    PRIMARY KEY (client_id, filter)
);

CREATE TABLE topic (
    topic      TEXT NOT NULL PRIMARY KEY,
    mode       INTEGER NOT NULL,
    expiry_s   INTEGER,
    format     INTEGER,
    media_type TEXT NOT NULL,
    schema     BLOB NOT NULL,
    type_id    INTEGER NOT NULL
);

CREATE TABLE retained (
    topic      TEXT NOT NULL,
    number     INTEGER NOT NULL,
    payload    BLOB,  -- NULL if spooled
    spool      TEXT,  -- the name of its file below spool/
    size       INTEGER NOT NULL,  -- of the payload
    qos        INTEGER NOT NULL,
    retain     INTEGER NOT NULL,
    publisher  TEXT NOT NULL,
    expires_at REAL,
    properties TEXT,
    PRIMARY KEY (topic, number)
);
CREATE INDEX retained_spool ON retained (spool) WHERE spool IS NOT NULL;

CREATE TABLE received (
    client_id TEXT NOT NULL,
    exchange  INTEGER NOT NULL,  -- kind << 16 | packet identifier
    PRIMARY KEY (client_id, exchange)
);

CREATE TABLE queue (
    id    INTEGER PRIMARY KEY,
    owner TEXT UNIQUE  -- NULL once it is dropped: its deliveries are removed some at a time
);
CREATE INDEX queue_dropped ON queue (id) WHERE owner IS NULL;

CREATE TABLE message (
    id         INTEGER PRIMARY KEY,
    refs       INTEGER NOT NULL,  -- deliveries that name it
    topic      TEXT NOT NULL,
    payload    BLOB,
    spool      TEXT,
    qos        INTEGER NOT NULL,
    retain     INTEGER NOT NULL,
    publisher  TEXT NOT NULL,
    properties TEXT
);
CREATE INDEX message_spool ON message (spool) WHERE spool IS NOT NULL;

CREATE TABLE delivery (
    queue      INTEGER NOT NULL REFERENCES queue (id),
    number     INTEGER NOT NULL,
    message    INTEGER NOT NULL REFERENCES message (id),
    qos        INTEGER NOT NULL,
    packet_id  INTEGER NOT NULL,  -- 0 until it has one that must be kept
    released   INTEGER NOT NULL,
    share      TEXT,
    size       INTEGER NOT NULL,  -- payload bytes: counting a queue reads no message
    expires_at REAL,
    PRIMARY KEY (queue, number)
) WITHOUT ROWID;
CREATE INDEX delivery_packet_id ON delivery (queue, packet_id) WHERE packet_id <> 0;
CREATE INDEX delivery_expires_at ON delivery (expires_at) WHERE expires_at IS NOT NULL;

CREATE TRIGGER delivery_removed AFTER DELETE ON delivery BEGIN
    UPDATE message SET refs = refs - 1 WHERE id = OLD.message;
    DELETE FROM message WHERE id = OLD.message AND refs <= 0;
END;

-- What time it was, on every clock there is, when this was last written: see timeline.py.
CREATE TABLE anchor (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    boot_id  TEXT NOT NULL,
    boottime REAL NOT NULL,
    wall     REAL NOT NULL,
    timeline REAL NOT NULL
);

CREATE TABLE run (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    ended_clean INTEGER NOT NULL  -- 0 while a broker runs, and after one that was killed
);
INSERT INTO run VALUES (1, 1);
