-- Version 4: what topics said in windows of time that are still open.

CREATE TABLE aggregate (
    computation TEXT NOT NULL,  -- the canonical subscription, and whose it is alone where there are rules of access
    topic       TEXT NOT NULL,
    window      INTEGER NOT NULL,  -- its number since 1970
    count       INTEGER NOT NULL,
    total       TEXT NOT NULL,  -- decimal, in all its digits
    least       TEXT NOT NULL,
    greatest    TEXT NOT NULL,
    PRIMARY KEY (computation, topic)
);
