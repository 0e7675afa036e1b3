-- Version 2: a disorder among keys that have waited equally long. The program fills the new
-- column for rows that are there already (src/stores/sqlite/schema.rs), so nothing is thrown away.
ALTER TABLE queue ADD COLUMN order_jitter INTEGER;
