-- The tables of version 2, as the Python supervisor makes them (docs/spec/supervisor.md, 6).
CREATE TABLE `fetchers` (
    `fetcher_id` `integer` PRIMARY KEY AUTOINCREMENT,
    `name` `text` NOT NULL UNIQUE) STRICT;
CREATE TABLE `fetcher_runs` (
    `fetcher_id` `integer` NOT NULL REFERENCES `fetchers` (`fetcher_id`),
    `run_started` `integer` NOT NULL,
    `is_complete` `integer` NOT NULL DEFAULT 0,
    PRIMARY KEY (`fetcher_id`, `run_started`)) STRICT;
CREATE INDEX `fetcher_run_started_index` ON `fetcher_runs` (`run_started`, `fetcher_id`);
CREATE TRIGGER `fetcher_runs_delete` AFTER DELETE ON `fetcher_runs` BEGIN
    DELETE FROM `fetchers` WHERE `fetcher_id` = OLD.`fetcher_id` AND `fetcher_id` NOT IN
        (SELECT `fetcher_id` FROM `fetcher_runs`);
END;
CREATE TABLE `queue` (
    `fetcher_id` `integer` NOT NULL,
    `fetcher_run_started` `integer` NOT NULL,
    `attr_path` `text` NOT NULL,
    `payload` `text` NOT NULL,
    `is_dequeued` `integer` NOT NULL DEFAULT 0,
    `last_started` `integer`,
    PRIMARY KEY (`fetcher_run_started`, `fetcher_id`, `attr_path`),
    FOREIGN KEY (`fetcher_id`, `fetcher_run_started`)
        REFERENCES `fetcher_runs` (`fetcher_id`, `run_started`) ON DELETE CASCADE) STRICT;
CREATE INDEX `queue_order_index` ON `queue`
    (`last_started` ASC, `attr_path`, `fetcher_id`, `fetcher_run_started` DESC);
CREATE INDEX `queue_attr_path_index` ON `queue` (`attr_path` ASC);
CREATE TABLE `log` (
    `attr_path` `text` PRIMARY KEY,
    `started` `integer` NOT NULL,
    `finished` `integer`,
    `exit_code` `integer`) STRICT, WITHOUT ROWID;
CREATE TRIGGER `queue_insert_started` AFTER INSERT ON `queue` BEGIN
    UPDATE `queue` SET `last_started` = `started` FROM `log`
    WHERE `log`.`attr_path` = NEW.`attr_path` AND `queue`.`rowid` = NEW.`rowid`;
END;
CREATE TRIGGER `log_insert_started` AFTER INSERT ON `log` BEGIN
    UPDATE `queue` SET `last_started` = NEW.`started`
    WHERE `queue`.`attr_path` = NEW.`attr_path`;
END;
CREATE TRIGGER `log_update_started` AFTER UPDATE OF `started` ON `log` BEGIN
    UPDATE `queue` SET `last_started` = NEW.`started`
    WHERE `queue`.`attr_path` = NEW.`attr_path`;
END;
PRAGMA user_version = 1;
ALTER TABLE `queue` ADD COLUMN `order_jitter` `integer`;
DROP INDEX `queue_order_index`;
CREATE INDEX `queue_order_index` ON `queue`
    (`last_started` ASC, `order_jitter`, `attr_path`, `fetcher_id`, `fetcher_run_started` DESC);
PRAGMA user_version = 2;
