import { oursAt } from "./inference/servers.ts";
import { runSoak, type SoakOutcome, type SoakPlan } from "./soak/soak-load.ts";
import { type LedgerRow, metricSum, readLedger, tokensOf } from "./soak/usage-books.ts";
import { withCleanup } from "./support/child-process.ts";
import { readOptions } from "./support/command-line.ts";
import { heddleUp, type RunningHeddle, serveTinyModel } from "./support/heddle-up.ts";
import { ProcessSampler, type ProcessTrend } from "./support/process-sampler.ts";
import { writeReport } from "./support/result.ts";
import { summarizeSamples } from "./support/statistics.ts";
import { printTable, printVerdicts, type Verdict } from "./support/table.ts";

// Many short answers from a whole cluster, some of whose clients disconnect: tests for leaks.

const usage = "npm run bench:soak -- [--requests N] [--concurrency N] [--cancelled 0.1] [--seed N]";
const options = readOptions(usage, ["requests", "concurrency", "cancelled", "seed"]);
const plan: SoakPlan = {
  requests: Number(options["requests"] ?? 10_000),
  concurrency: Number(options["concurrency"] ?? 32),
  cancelled: Number(options["cancelled"] ?? 0.1),
  seed: Number(options["seed"] ?? Date.now() % 1_000_000),
};
const settleMs = 15_000;

await withCleanup(async () => {
  console.log(`seed ${plan.seed} (repeat with --seed ${plan.seed})`);
  const cluster = await heddleUp(["--profile", "tiny"]);
  const model = await serveTinyModel(cluster);
  const server = oursAt(cluster.api.url, await cluster.api.createLimitedKey(), model);
  const sampler = new ProcessSampler(() => cluster.processes(), 1_000);
  sampler.resume();
  const startedAt = performance.now();
  const outcomes = await runSoak(server, plan, (done) => {
    if (done % 1_000 === 0) console.log(`${done} of ${plan.requests} requests have ended`);
  });
  const seconds = (performance.now() - startedAt) / 1000;
  sampler.pause();
  const idleAfterMs = await untilIdle(cluster);
  const books = await compareBooks(cluster, outcomes);
  const trends = sampler.trends();
  printTrends(trends);
  printOutcomes(outcomes, seconds);
  const verdicts = judge(outcomes, trends, idleAfterMs, books);
  printVerdicts(verdicts);
  const failed = outcomes.filter(({ outcome }) => !expected(outcome));
  writeReport(options, "soak", { plan, seconds, idleAfterMs, books, trends, verdicts, failed });
});

/** The milliseconds until no request ran or waited; undefined if some still did at the end. */
async function untilIdle({ api }: RunningHeddle): Promise<number | undefined> {
  const startedAt = performance.now();
  while (performance.now() - startedAt < settleMs) {
    const text = await api.metrics();
    const running = metricSum(text, "heddle_replica_requests_running") ?? Number.NaN;
    const waiting = metricSum(text, "heddle_replica_requests_waiting") ?? Number.NaN;
    if (running === 0 && waiting === 0) return performance.now() - startedAt;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  return undefined;
}

interface Books {
  readonly ledger: { readonly prompt: number; readonly completion: number };
  readonly metrics: { readonly prompt: number; readonly completion: number };
  /** Requests without a row, or with a row that differs from the client's usage. */
  readonly wrongRows: readonly string[];
}

/** Compares the ledger with the metrics, and each answer's usage with its row. */
async function compareBooks(
  { api, dataDirectory }: RunningHeddle,
  outcomes: readonly SoakOutcome[],
): Promise<Books> {
  // The ledger is written in batches, at most a second after a call has ended.
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  const text = await api.metrics();
  const rows = readLedger(dataDirectory);
  const byId = Map.groupBy(rows, ({ requestId }) => requestId);
  return {
    ledger: tokensOf(rows),
    metrics: {
      prompt: metricSum(text, "vllm:prompt_tokens_total") ?? Number.NaN,
      completion: metricSum(text, "vllm:generation_tokens_total") ?? Number.NaN,
    },
    wrongRows: outcomes
      .filter((outcome) => !rowFits(outcome, byId.get(outcome.requestId) ?? []))
      .map(({ requestId, outcome }) => `${requestId} (${outcome})`),
  };
}

function rowFits(outcome: SoakOutcome, rows: readonly LedgerRow[]): boolean {
  // A client that left before its request was read has no row.
  if (outcome.outcome === "aborted") return rows.length <= 1;
  if (outcome.outcome !== "answered") return true;
  const [row] = rows;
  return (
    rows.length === 1 &&
    row?.promptTokens === outcome.promptTokens &&
    row?.completionTokens === outcome.completionTokens &&
    row?.errorCode === undefined
  );
}

function printTrends(trends: readonly ProcessTrend[]): void {
  printTable(
    "Processes, sampled every second (memory in MiB)",
    ["process", "pid", "RSS first", "last", "max", "MiB/min", "fds first", "last", "max", "flat"],
    trends.map((trend) => [
      trend.role,
      trend.pid,
      trend.residentMiB.first,
      trend.residentMiB.last,
      trend.residentMiB.max,
      trend.residentMiBPerMinute,
      trend.descriptors.first,
      trend.descriptors.last,
      trend.descriptors.max,
      trend.flat ? "yes" : "no",
    ]),
  );
}

function printOutcomes(outcomes: readonly SoakOutcome[], seconds: number): void {
  const groups = Map.groupBy(outcomes, ({ outcome }) => outcome);
  printTable(
    `${outcomes.length} requests in ${seconds.toFixed(0)} s`,
    ["outcome", "requests", "p50 ms", "p99 ms", "max ms"],
    [...groups].map(([outcome, list]) => {
      const { count, p50, p99, max } = summarizeSamples(list.map(({ totalMs }) => totalMs));
      return [outcome.slice(0, 100), count, p50, p99, max];
    }),
  );
}

function judge(
  outcomes: readonly SoakOutcome[],
  trends: readonly ProcessTrend[],
  idleAfterMs: number | undefined,
  { ledger, metrics, wrongRows }: Books,
): readonly Verdict[] {
  const failed = outcomes.filter(({ outcome }) => !expected(outcome)).length;
  const agree = ledger.prompt === metrics.prompt && ledger.completion === metrics.completion;
  const growing = trends.filter(({ flat }) => !flat).map(({ role }) => role);
  const idle = idleAfterMs === undefined ? "never" : `after ${idleAfterMs.toFixed(0)} ms`;
  return [
    {
      bar: "every request ends: answered, or its client aborted it",
      measured: `${failed} did not`,
      pass: failed === 0,
    },
    { bar: "no slot leaks: running and waiting are 0", measured: idle, pass: idle !== "never" },
    {
      bar: "the ledger sums to the metrics",
      measured: `${ledger.completion} = ${metrics.completion} tokens out`,
      pass: agree,
    },
    {
      bar: "each answer has its own ledger row with the same usage",
      measured: `${wrongRows.length} have not`,
      pass: wrongRows.length === 0,
    },
    {
      bar: "memory and descriptors of every process are flat",
      measured: growing.length === 0 ? "flat" : `${growing.join(", ")} grow`,
      pass: growing.length === 0,
    },
  ];
}

function expected(outcome: string): boolean {
  return outcome === "answered" || outcome === "aborted";
}
