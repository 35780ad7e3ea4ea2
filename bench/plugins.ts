import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startPinnedMaster } from "./gateway/heddle.ts";
import type { GetLoad, GetResult } from "./plugins/get-loop.ts";
import { Child, withCleanup } from "./support/child-process.ts";
import { benchFolder, numberList, readOptions } from "./support/command-line.ts";
import { HeddleApi } from "./support/heddle-api.ts";
import { originOf } from "./support/origin.ts";
import { processTree, threadsCpuMs } from "./support/proc-files.ts";
import { writeReport } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { atLeast, atMost, printTable, printVerdicts, type Verdict } from "./support/table.ts";

// A route of a plugin against the built-in route of the same work, in rounds that visit each route.
// Every second round visits them in the opposite order. Ratios are of figures of one round.
// The master and the plugin's process are on one core, the callers on the other.

const usage = "npm run bench:plugins -- [--seconds 3] [--rounds 5] [--concurrency 1,16,64]";
const options = readOptions(usage, ["seconds", "rounds", "concurrency"]);
const durationMs = Number(options["seconds"] ?? 3) * 1_000;
const rounds = Number(options["rounds"] ?? 5);
const concurrencies = numberList(options["concurrency"] ?? "1,16,64");
const CORES = { master: 0, callers: 1 };
/** Until the JIT compiler has seen each route often. */
const WARM_UP_MS = 8_000;
/** Against the built-in route: of a hot path, and of a plugin that is contained. */
const BARS = {
  "in-master": { leastRate: 0.95, mostCpu: 1.05 },
  "own-process": { leastRate: 0.75, mostCpu: 1.4 },
};

const BUILT_IN = "built in";
const ROUTES = [
  [BUILT_IN, "/api/v1/access/whoami"],
  ["in-master", "/api/v1/custom/in-master/whoami"],
  ["own-process", "/api/v1/custom/own-process/whoami"],
] as const;

interface Cell {
  readonly route: string;
  readonly path: string;
  readonly concurrency: number;
  readonly rounds: { readonly rate: number; readonly cpuMicros: number; readonly p50Ms: number }[];
}

await withCleanup(async () => {
  const list = fileURLToPath(new URL("./plugins/plugins.json", import.meta.url));
  const master = await startPinnedMaster({ core: CORES.master, flags: ["--plugins", list] });
  const key = await new HeddleApi(master.url, master.secrets.apiKey).createLimitedKey();
  const shared = { origin: originOf(master.url), headers: { authorization: `Bearer ${key}` } };
  const cells = concurrencies.flatMap((concurrency) =>
    ROUTES.map(([route, path]): Cell => ({ route, path, concurrency, rounds: [] })),
  );
  for (const [, path] of ROUTES) {
    await call({
      ...shared,
      path,
      concurrency: 16,
      durationMs: WARM_UP_MS,
      expectedText: "caller",
    });
  }
  for (let round = 1; round <= rounds; round++) {
    for (const cell of round % 2 === 0 ? cells.toReversed() : cells) {
      const { path, concurrency } = cell;
      const processes = processTree(master.pid);
      const cpuMs = () => processes.reduce((sum, pid) => sum + threadsCpuMs(pid), 0);
      const before = cpuMs();
      const load = { ...shared, path, concurrency, durationMs, expectedText: "caller" };
      const { requests, seconds, latencyMs } = await call(load);
      const cpuMicros = ((cpuMs() - before) * 1_000) / requests;
      cell.rounds.push({ rate: requests / seconds, cpuMicros, p50Ms: latencyMs.p50 });
    }
    console.log(`round ${round} of ${rounds}`);
  }
  report(cells);
});

async function call(load: GetLoad): Promise<GetResult> {
  const child = new Child({
    name: "callers",
    command: process.execPath,
    args: [fileURLToPath(new URL("./plugins/get-loop.ts", import.meta.url)), JSON.stringify(load)],
    core: CORES.callers,
    logFile: join(benchFolder, "logs/plugin-callers.log"),
  });
  const [line] = await child.line(/^\{.*\}$/, load.durationMs + 60_000);
  await child.stop();
  return JSON.parse(line) as GetResult;
}

function report(cells: readonly Cell[]): void {
  const figures = cells.map(({ route, concurrency, rounds: all }) => ({
    route,
    concurrency,
    rate: median(all.map(({ rate }) => rate)),
    cpuMicros: median(all.map(({ cpuMicros }) => cpuMicros)),
    p50Ms: median(all.map(({ p50Ms }) => p50Ms)),
  }));
  printTable(
    "GET whoami, medians of the rounds; CPU time of the master and of the plugin's process",
    ["route", "at once", "requests/s", "CPU us a request", "p50 ms"],
    figures.map(({ route, concurrency, rate, cpuMicros, p50Ms }) => {
      return [route, concurrency, rate, cpuMicros, p50Ms];
    }),
  );
  const ratios = concurrencies.flatMap((concurrency) =>
    Object.entries(BARS).map(([route, bars]) => ({
      what: `${route}, ${concurrency} at once, against built in`,
      rates: ratiosOf(cells, route, concurrency, "rate"),
      cpus: ratiosOf(cells, route, concurrency, "cpuMicros"),
      ...bars,
    })),
  );
  printTable(
    "To the built-in route in the same round",
    ["route", "requests/s, least", "median", "most", "CPU, least", "median", "most"],
    ratios.map(({ what, rates, cpus }) => [what, ...spreadOf(rates), ...spreadOf(cpus)]),
  );
  const verdicts = ratios.flatMap(({ what, rates, cpus, leastRate, mostCpu }): Verdict[] => [
    atLeast(`${what}: requests/s`, median(rates), leastRate, "x"),
    atMost(`${what}: CPU a request`, median(cpus), mostCpu),
  ]);
  printVerdicts(verdicts);
  writeReport(options, "plugins", { figures, cells, ratios, verdicts });
}

/** The ratios of a route to the built-in one, round by round. */
function ratiosOf(
  cells: readonly Cell[],
  route: string,
  concurrency: number,
  figure: "rate" | "cpuMicros",
): number[] {
  const roundsOf = (name: string) =>
    cells.find((each) => each.route === name && each.concurrency === concurrency)!.rounds;
  const base = roundsOf(BUILT_IN);
  return roundsOf(route).map((round, at) => round[figure] / base[at]![figure]);
}

function spreadOf(values: readonly number[]): [number, number, number] {
  return [Math.min(...values), median(values), Math.max(...values)];
}
