import { TestCluster } from "../apps/master/test/test-cluster.ts";
import { readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { summarizeSamples } from "./support/statistics.ts";
import { printTable } from "./support/table.ts";

// What the hop from a master to a worker costs, with an engine that answers at once. Both share the
// machine's cores.

const options = readOptions("npm run bench:wire-hop --", []);
const cluster = new TestCluster();
await cluster.startMaster();
cluster.control.deploy("m", "every-worker", { maxSequences: 128, maxQueued: 128 });
await cluster.startWorker();
await cluster.workersReady("m", 1);

async function one(text: string): Promise<{ firstMs: number; events: number; tokens: number }> {
  const began = performance.now();
  const answer = await cluster.start("m", text);
  const firstMs = performance.now() - began;
  let events = 0;
  let tokens = 0;
  let isDone = false;
  for await (const event of answer.events) {
    events += 1;
    if (event.type === "delta") tokens += event.tokens;
    isDone = event.type === "done";
  }
  if (!isDone || !text.endsWith(`=${tokens}`)) throw new Error(`"${text}" gave ${tokens} tokens`);
  return { firstMs, events, tokens };
}

/** From `dispatch.start` to the first event. */
async function firstEvent(rounds: number) {
  const times: number[] = [];
  for (let round = 0; round < rounds; round += 1) times.push((await one("@tokens=1")).firstMs);
  return summarizeSamples(times);
}

async function stream(streams: number, tokens: number) {
  const began = performance.now();
  const cpu = process.cpuUsage();
  const all = await Promise.all(Array.from({ length: streams }, () => one(`@tokens=${tokens}`)));
  const seconds = (performance.now() - began) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  const events = all.reduce((sum, each) => sum + each.events, 0);
  const cpuMicrosPerToken = (user + system) / (streams * tokens);
  const tokensPerSecond = (streams * tokens) / seconds;
  // Fewer events than tokens: those that the reader had not yet taken are merged.
  return { streams, tokensPerSecond, eventsPerSecond: events / seconds, cpuMicrosPerToken };
}

async function shortCalls(concurrency: number, total: number) {
  const began = performance.now();
  let left = total;
  const caller = async () => {
    while (left-- > 0) await one("@tokens=1");
  };
  await Promise.all(Array.from({ length: concurrency }, caller));
  return { concurrency, callsPerSecond: total / ((performance.now() - began) / 1_000) };
}

await firstEvent(500);
const first = await firstEvent(2_000);
const streams = [await stream(1, 20_000), await stream(16, 5_000), await stream(64, 2_000)];
const calls = [await shortCalls(1, 5_000), await shortCalls(16, 20_000)];
await cluster.close();
printTable(
  "First event of a call, ms",
  ["calls", "p50", "p99"],
  [[first.count, first.p50, first.p99]],
);
printTable(
  "Streams",
  ["streams", "tokens/s", "events/s", "CPU us a token"],
  streams.map((s) => [s.streams, s.tokensPerSecond, s.eventsPerSecond, s.cpuMicrosPerToken]),
);
printTable(
  "Calls of one token",
  ["at once", "calls/s"],
  calls.map(({ concurrency, callsPerSecond }) => [concurrency, callsPerSecond]),
);
writeReport(options, "wire-hop", { first, streams, calls });
