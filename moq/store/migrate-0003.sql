-- Version 3: messages of QoS 3 and who has confirmed them.

CREATE TABLE collection (
    client_id   TEXT NOT NULL,  -- of the publisher
    packet_id   INTEGER NOT NULL,
    number      INTEGER NOT NULL,  -- as in the properties of the message
    topic       TEXT NOT NULL,
    qos         INTEGER NOT NULL,
    waited      INTEGER NOT NULL,
    subscribers TEXT NOT NULL,  -- JSON: those who count, empty if all do
    began_at    REAL NOT NULL,
    deadline    REAL NOT NULL,
    places      TEXT NOT NULL,  -- JSON: subscribers and groups that were to confirm
    reason      INTEGER,  -- how it ended
    PRIMARY KEY (client_id, packet_id)
);

CREATE TABLE confirmation (
    client_id  TEXT NOT NULL,
    packet_id  INTEGER NOT NULL,
    place      TEXT NOT NULL,
    subscriber TEXT,  -- NULL: nobody will
    after_s    REAL NOT NULL,
    reply      BLOB,
    PRIMARY KEY (client_id, packet_id, place)
);
