-- Version 6: keys that go before the order.

-- As SQLite's shiftboss_bumps. There are few.
CREATE TABLE bumps (
    place        int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id       int8 NOT NULL UNIQUE,
    since        int8 NOT NULL,
    bumped_by    text NOT NULL,
    attempt      int8,
    last_attempt int8
);
CREATE INDEX bumps_out ON bumps (attempt) WHERE attempt IS NOT NULL;
-- One row: what hand-outs before the order may cost, and how much each hand-out adds, in thousandths. The daemon that joined last
-- says how much; before one did, nothing goes before the order.
CREATE TABLE bump_credit (thousandths int8 NOT NULL, share int4 NOT NULL);
INSERT INTO bump_credit VALUES (1000, 0);
