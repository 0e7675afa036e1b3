//! What other connections see of the tables.

use super::Model;

impl Model {
    /// The public tables, deliveries, and when fetchers were last served, as lines.
    pub fn tables(&self) -> Vec<String> {
        let text = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
        let mut lines = Vec::new();
        for (id, name) in &self.fetchers {
            lines.push(format!("fetcher|{id}|{name}"));
        }
        for (fetcher, run, complete) in &self.runs {
            lines.push(format!("run|{fetcher}|{run}|{}", i32::from(*complete)));
        }
        for row in &self.queue {
            let started = text(self.log.get(&row.key).map(|log| log.0));
            let (fetcher, run, key, payload) = (row.fetcher, row.run, &row.key, &row.payload);
            let dispatched = i32::from(row.dispatched);
            lines.push(format!("queue|{fetcher}|{run}|{key}|{payload}|{dispatched}|{started}"));
        }
        for (key, (started, finished, code)) in &self.log {
            lines.push(format!("log|{key}|{started}|{}|{}", text(*finished), text(*code)));
        }
        for delivery in &self.deliveries {
            lines.push(format!("delivery|{}|{}", delivery.key, delivery.attempt));
        }
        for ((key, name), attempt) in &self.last_served {
            lines.push(format!("last_served|{key}|{name}|{attempt}"));
        }
        lines.extend(self.single_lines());
        lines.sort();
        lines
    }
}
