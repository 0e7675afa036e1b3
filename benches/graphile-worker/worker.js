// A process of graphile-worker whose jobs do nothing, until it is told to stop. `make bench-postgres` measures it.
//
// node worker.js URL CONCURRENCY QUEUE: so many jobs at a time; of so many in its local queue, or none (0). CONCURRENCY 0
// makes the schema, and ends.
const { Logger, run, runMigrations } = require("graphile-worker");

const [connectionString, concurrency, queue] = process.argv.slice(2);
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const batches = { localQueue: { size: Number(queue) }, completeJobBatchDelay: 0 };
const worker = {
  concurrentJobs: Number(concurrency),
  maxPoolSize: Number(concurrency) + 2,
  ...(queue === "0" ? {} : batches),
};

async function main() {
  if (concurrency === "0") return runMigrations({ connectionString, logger });
  const preset = { worker: { connectionString, logger, ...worker } };
  const runner = await run({ preset, taskList: { nothing: () => {} } });
  return runner.promise;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
