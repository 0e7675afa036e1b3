//! That no question goes through a table, whatever is in it.

use shiftboss_queue::context::Settings;
use shiftboss_queue::listings::{EndsOf, Listings, SumsOf};
use shiftboss_queue::record::FetcherId;

use crate::words::{NOW, Script};
use crate::{alike, subject};

/// Tables that may be large. Of sums by hour and minute those of a time are gone through.
const LARGE: [&str; 7] = ["keys", "places", "rows", "extras", "tasks", "attempts", "documents"];

/// Each statement goes along an index, and none is asked for an order that it has to make, but of groups and of what few it found.
#[test]
fn no_question_goes_through_a_table() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a b c d e\nlease\ndone 1 0\nlease\ndone 2 7\nlease\nexpire 3\nlease");
    script.run("add d\nadd z\nadd z=2\nhold e 9\nbump c\nlog x 1 2 3");
    let reader = subject::reader(script.store());
    alike::told(&reader, NOW);
    let moment = &mut *reader.0.lock().unwrap();
    let plans = subject::wait(async {
        moment.sample(3).await.unwrap();
        moment.failed(i64::MAX, 0, 9).await.unwrap();
        let (above, before, since, count) = (0, i64::MAX, 0, 9);
        let (outcomes, fetcher) = (&["success"][..], Some(FetcherId(1)));
        moment.ends(&EndsOf { above, before, outcomes, fetcher, since, count }).await.unwrap();
        let fetchers = Some(&[FetcherId(1)][..]);
        let of = SumsOf { since, fetchers, by_fetcher: true, hours: 24, count };
        moment.hours(&of).await.unwrap();
        let sql = "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements
            WHERE statement LIKE 'SELECT%FROM%'";
        let mut plans = Vec::new();
        for row in moment.client().query(sql, &[]).await.unwrap() {
            let (name, statement, parameters): (&str, String, i32) =
                (row.get(0), row.get(1), row.get(2));
            let values = vec!["NULL"; parameters as usize].join(", ");
            let values = if values.is_empty() { values } else { format!("({values})") };
            let explain = format!("EXPLAIN EXECUTE \"{name}\" {values}");
            let plan = moment.client().simple_query(&explain).await.unwrap();
            plans.push((statement, format!("{plan:#?}")));
        }
        plans
    });
    assert!(plans.len() > 30, "{}", plans.len());
    for (statement, plan) in plans {
        let goes_through =
            LARGE.iter().any(|table| plan.contains(&format!("Seq Scan on {table} ")));
        assert!(
            !goes_through || statement.contains("UNION SELECT key FROM tasks"),
            "{statement}: {plan}"
        );
    }
}
