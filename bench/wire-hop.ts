import { TestCluster } from "../apps/master/test/test-cluster.ts";

/**
 * What the hop from a master to a worker costs, with an engine that answers at once: the time from
 * `dispatch.start` to the first event, and events a second over one stream. `node bench/wire-hop.ts`
 * prints one JSON line a figure. Master and worker share the machine's cores.
 */
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

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

async function firstEvent(rounds: number): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round += 1) times.push((await one("@tokens=1")).firstMs);
  times.sort((a, b) => a - b);
  const figure = { p50Ms: percentile(times, 0.5), p99Ms: percentile(times, 0.99) };
  process.stdout.write(`${JSON.stringify({ figure: "first event", rounds, ...figure })}\n`);
}

async function throughput(streams: number, tokens: number): Promise<void> {
  const began = performance.now();
  const cpu = process.cpuUsage();
  const all = await Promise.all(Array.from({ length: streams }, () => one(`@tokens=${tokens}`)));
  const seconds = (performance.now() - began) / 1_000;
  const used = process.cpuUsage(cpu);
  const events = all.reduce((sum, each) => sum + each.events, 0);
  const figure = {
    figure: "stream",
    streams,
    tokensPerSecond: Math.round((streams * tokens) / seconds),
    // Fewer than the tokens: those that the reader had not yet taken were folded.
    eventsPerSecond: Math.round(events / seconds),
    masterCpuUsPerToken: (used.user + used.system) / (streams * tokens),
  };
  process.stdout.write(`${JSON.stringify(figure)}\n`);
}

async function calls(concurrency: number, total: number): Promise<void> {
  const began = performance.now();
  let left = total;
  const worker = async () => {
    while (left-- > 0) await one("@tokens=1");
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  const callsPerSecond = Math.round(total / ((performance.now() - began) / 1_000));
  const figure = { figure: "short calls", concurrency, total, callsPerSecond };
  process.stdout.write(`${JSON.stringify(figure)}\n`);
}

await firstEvent(500);
await firstEvent(2_000);
await throughput(1, 20_000);
await throughput(16, 5_000);
await throughput(64, 2_000);
await calls(1, 5_000);
await calls(16, 20_000);
await cluster.close();
