//! No question scans a whole table, whatever is in it.

use shiftboss_queue::context::Settings;
use shiftboss_queue::listings::{EndsOf, Listings, SumsOf};
use shiftboss_queue::record::FetcherId;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::words::{NOW, Script};
use crate::{alike, subject};

/// Tables that may be large. Sums by hour and minute are scanned for a period.
const LARGE: [&str; 7] = ["keys", "places", "rows", "extras", "tasks", "attempts", "documents"];

/// Each statement goes along an index, and none has to sort, except groups and the few rows that it found.
#[test]
fn no_question_goes_through_a_table() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a b c d e\nlease\ndone 1 0\nlease\ndone 2 7\nlease\nexpire 3\nlease");
    script.run(&format!(
        "list g.1 {}",
        (0..999).map(|it| format!("k{it}")).collect::<Vec<_>>().join(" ")
    ));
    script.run(&"lease\n".repeat(200));
    script.run("add d\nadd z\nadd z=2\nhold e 9\nbump c\nlog x 1 2 3");
    let reader = subject::reader(script.store());
    alike::told(&reader, NOW);
    let moment = &mut *reader.0.lock().unwrap();
    let plans = subject::wait(async {
        moment.client().simple_query("ANALYZE").await.unwrap();
        moment.sample(3).await.unwrap();
        let (above, before, since, count) = (0, i64::MAX, 0, 9);
        let (outcomes, fetcher) = (&["success"][..], Some(FetcherId(1)));
        moment.ends(&EndsOf { above, before, outcomes, fetcher, since, count }).await.unwrap();
        let fetchers = Some(&[FetcherId(1)][..]);
        let of = SumsOf { since, fetchers, by_fetcher: true, hours: 24, count };
        moment.hours(&of).await.unwrap();
        let mut plans = plans_of(moment.client()).await;
        plans.extend(plans_of(script.store().client()).await);
        plans
    });
    assert!(plans.len() > 30, "{}", plans.len());
    for (statement, plan) in plans {
        // Otherwise all places of a kind are scanned, including those that were left, as long as a snapshot is open.
        let goes_over = statement.contains("unnest") && plan.contains("Index Cond: (kind = 3)\n");
        assert!(!goes_over, "{statement}: {plan}");
        let goes_through =
            LARGE.iter().any(|table| plan.contains(&format!("Seq Scan on {table} ")));
        assert!(
            !goes_through || statement.contains("UNION SELECT key FROM tasks"),
            "{statement}: {plan}"
        );
    }
}

/// The statements of a connection so far, each with its plan.
async fn plans_of(client: &Client) -> Vec<(String, String)> {
    let sql = "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements
        WHERE statement LIKE 'SELECT%FROM%'";
    let mut plans = Vec::new();
    for row in client.query(sql, &[]).await.unwrap() {
        let (name, statement, parameters): (&str, String, i32) =
            (row.get(0), row.get(1), row.get(2));
        let values = vec!["NULL"; parameters as usize].join(", ");
        let values = if values.is_empty() { values } else { format!("({values})") };
        let explain = format!("EXPLAIN EXECUTE \"{name}\" {values}");
        let plan = client.simple_query(&explain).await.unwrap();
        let lines = plan.iter().filter_map(|it| match it {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        plans.push((statement, lines.collect::<Vec<_>>().join("\n")));
    }
    plans
}
