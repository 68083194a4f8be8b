// Sends batches of messages, each a list in JSON on a line of stdin, and says for each of them on
// stdout whether it was acknowledged. Below the configuration that docs/logs.md shows.
import { once } from "node:events";
import { createInterface } from "node:readline";

async function elasticsearch() {
  const bulk = { maxRetries: 0, requestTimeout: 20_000 };
  return async (batch) => {
    const operations = batch.flatMap((message) => [{ create: {} }, { message }]);
    const reply = await client.bulk({ index: "app", operations }, bulk);
    if (reply.errors) throw new Error(JSON.stringify(reply.items));
  };
}

async function loki() {
  let failure = null;
  console.error = (...what) => { failure = what.join(" "); };
  return async (batch) => {
    failure = null;
    const sending = pinoLoki({ ...options, batching: { interval: 3600 } });
    const lines = batch.map((msg) => JSON.stringify({ level: 50, time: Date.now(), msg }) + "\n");
    const closed = once(sending, "close");
    sending.end(lines.join(""));
    await closed;
    if (failure) throw new Error(failure);
  };
}

async function otlp() {
  const { OTLPLogExporter } = await import("@opentelemetry/exporter-logs-otlp-proto");
  const { resourceFromAttributes } = await import("@opentelemetry/resources");
  const { LoggerProvider } = await import("@opentelemetry/sdk-logs");
  const exporter = new OTLPLogExporter({ timeoutMillis: 2000 });
  let records = [];
  const keep = { onEmit: (record) => records.push(record), forceFlush: async () => {}, shutdown: async () => {} };
  const resource = resourceFromAttributes({ "service.name": "app" });
  const logger = new LoggerProvider({ resource, processors: [keep] }).getLogger("tests");
  return async (batch) => {
    records = [];
    for (const body of batch) logger.emit({ body, severityNumber: 17, severityText: "ERROR" });
    const result = await new Promise((done) => exporter.export(records, done));
    if (result.code !== 0) throw result.error ?? new Error("not exported");
  };
}

const send = await { elasticsearch, loki, otlp }[process.argv[2]]();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  try {
    await send(JSON.parse(line));
    console.log("ok");
  } catch (error) {
    console.log(`failed ${String(error).replaceAll("\n", " ")}`);
  }
}
process.exit(0);
