import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { GatewayCores, GatewayUnderTest } from "./gateway/gateway-under-test.ts";
import { startHeddle } from "./gateway/heddle.ts";
import { mockRequest, mockText } from "./gateway/mock-answer.ts";
import { startPortkey } from "./gateway/portkey.ts";
import { Child, withCleanup } from "./support/child-process.ts";
import { benchFolder, numberList, readOptions, repositoryRoot } from "./support/command-line.ts";
import type { LoadResult } from "./support/load-generator.ts";
import { memoryReadNs } from "./support/memory-probe.ts";
import { originOf } from "./support/origin.ts";
import { sampleProcess } from "./support/proc-files.ts";
import { maxMoreDescriptors, ProcessSampler } from "./support/process-sampler.ts";
import { writeReport } from "./support/result.ts";
import { runLoad } from "./support/run-load.ts";
import { median } from "./support/statistics.ts";
import { formatNumber, printTable, printVerdicts, type Verdict } from "./support/table.ts";

// What the gateway costs: ours and a peer in front of engines that answer at once, in one run.

const usage =
  "npm run bench:gateway -- [--seconds N] [--rounds N] [--concurrency 1,10,64] [--warm-up REQUESTS] [--only ours|peer] [--cpu-profile DIR]";
const options = readOptions(usage, [
  "seconds",
  "rounds",
  "concurrency",
  "warm-up",
  "only",
  "cpu-profile",
]);
const durationMs = Number(options["seconds"] ?? 5) * 1000;
const rounds = Number(options["rounds"] ?? 5);
const concurrencies = numberList(options["concurrency"] ?? "1,10,64");
const warmupMs = 1_500;
/**
 * Requests that warm up every gateway's JIT compiler before the first round: the cost of a request
 * falls until about the 15,000th.
 */
const warmUpRequests = Number(options["warm-up"] ?? 20_000);
/** A stream has 64 deltas, so fewer of them are needed. */
const streamsOfWarmUp = 1 / 20;
const cores: GatewayCores = { gateway: 0, rest: 1 };
/** The most requests of the open loop at once. */
const openConcurrency = 256;
/** The latency of a memory read before each round, in ns: it shows how quiet the machine was. */
const memoryReads: number[] = [];

/** One cell of the result: a gateway at one concurrency, streaming or not, over all rounds. */
interface Cell {
  readonly gateway: string;
  readonly stream: boolean;
  readonly concurrency: number;
  readonly openRate?: number;
  readonly rounds: (LoadResult & { readonly gatewayCpuMs: number })[];
}

interface CellFigures {
  readonly gateway: string;
  readonly stream: boolean;
  readonly concurrency: number;
  /** Undefined in a closed loop. */
  readonly openRate: number | undefined;
  readonly requestsPerSecond: number;
  /** CPU time of the gateway; unlike the rate it is independent of other load. */
  readonly cpuMicrosPerRequest: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly firstTextP50Ms: number;
  readonly deltasPerSecond: number;
  readonly framesPerSecond: number;
  readonly lostDeltas: number;
  readonly failures: number;
  readonly firstFailure: string;
}

await withCleanup(async () => {
  const mockUrl = await startMock();
  const direct = directTo(mockUrl);
  const ours = options["only"] === "peer" ? undefined : await startHeddle(cores, profileFlags());
  const peer = options["only"] === "ours" ? undefined : await startPortkey(mockUrl, cores);
  const gateways = [ours, peer].filter((gateway) => gateway !== undefined);
  const samplers = gateways.map((gateway) => new ProcessSampler(() => gateway.processes, 250));
  for (const gateway of gateways) await warmUp(gateway);
  // Each kind of load has its own number of connections: only those left at the end are judged.
  const idleDescriptors = descriptorsOf(ours);
  // Without a peer, the engine without a gateway is no useful comparison.
  const without = peer ? [direct] : [];
  const targets = { without, gateways, samplers };
  const cells = await measure(targets, closedCells([...without, ...gateways]));
  const figures = cells.map(summarizeCell);
  const openCells = await measure(targets, halfLoadCells(gateways, figures));
  const openFigures = openCells.map(summarizeCell);
  const memory = samplers.flatMap((sampler, index) =>
    sampler.trends().map((trend) => ({ gateway: gateways[index]!.name, ...trend })),
  );
  printFigures(figures);
  printHalfLoad(openFigures);
  printTable(
    "Memory of the gateways under load (MiB)",
    ["gateway", "first", "last", "max", "MiB/min", "flat"],
    memory.map(({ gateway, residentMiB, residentMiBPerMinute, residentFlat }) => [
      gateway,
      residentMiB.first,
      residentMiB.last,
      residentMiB.max,
      residentMiBPerMinute,
      residentFlat ? "yes" : "no",
    ]),
  );
  const names = { direct: direct.name, ours: ours?.name, peer: peer?.name };
  const kept = {
    isFlat: memory[0]?.residentFlat ?? false,
    descriptors: descriptorsOf(ours) - idleDescriptors,
  };
  const verdicts = judge([...figures, ...openFigures], names, kept);
  printVerdicts(verdicts);
  const method = { durationMs, rounds, warmupMs, warmUpRequests, memoryReads };
  const measured = { figures, openFigures, memory, verdicts, cells, openCells };
  writeReport(options, "gateway", { ...method, ...measured });
});

async function startMock(): Promise<string> {
  const program = fileURLToPath(new URL("./gateway/mock-openai.ts", import.meta.url));
  const child = new Child({
    name: "mock OpenAI upstream",
    command: process.execPath,
    args: [program],
    core: cores.rest,
    cwd: repositoryRoot,
    logFile: join(benchFolder, "logs/mock-openai.log"),
  });
  const [url] = await child.line(/^http:\S+/, 20_000);
  return url;
}

/** The mock itself, without a gateway: the cost of the harness. */
function directTo(mockUrl: string): GatewayUnderTest {
  const path = "/v1/chat/completions";
  return { name: "no gateway", processes: [], origin: originOf(mockUrl), path, headers: {} };
}

async function warmUp(gateway: GatewayUnderTest): Promise<void> {
  for (const stream of [false, true]) {
    const wanted = stream ? warmUpRequests * streamsOfWarmUp : warmUpRequests;
    for (let done = 0; done < wanted; ) {
      const { allRequests } = await load(gateway, { stream, concurrency: 10 }, 0);
      if (allRequests === 0) throw new Error(`${gateway.name} answered nothing`);
      done += allRequests;
    }
  }
  console.log(`${gateway.name} is warm`);
}

interface Targets {
  readonly without: readonly GatewayUnderTest[];
  readonly gateways: readonly GatewayUnderTest[];
  /** One for each gateway. */
  readonly samplers: readonly ProcessSampler[];
}

function closedCells(targets: readonly GatewayUnderTest[]): readonly Cell[] {
  return [false, true].flatMap((stream) =>
    concurrencies.flatMap((concurrency) =>
      targets.map(({ name }): Cell => ({ gateway: name, stream, concurrency, rounds: [] })),
    ),
  );
}

/** Each gateway at half of the requests that it answers at the most, as it has room then. */
function halfLoadCells(
  gateways: readonly GatewayUnderTest[],
  figures: readonly CellFigures[],
): readonly Cell[] {
  return [false, true].flatMap((stream) =>
    gateways.map(({ name: gateway }): Cell => {
      const own = figures.filter((f) => f.gateway === gateway && f.stream === stream);
      const openRate = Math.max(...own.map((f) => f.requestsPerSecond)) / 2;
      return { gateway, stream, concurrency: openConcurrency, openRate, rounds: [] };
    }),
  );
}

/** Each round visits every target once at each load, so that drift of the machine affects all. */
async function measure(
  { without, gateways, samplers }: Targets,
  cells: readonly Cell[],
): Promise<readonly Cell[]> {
  const targets = [...without, ...gateways];
  for (let round = 1; round <= rounds; round += 1) {
    const readNs = memoryReadNs();
    memoryReads.push(readNs);
    console.log(`round ${round}  a read of 4 MiB takes ${formatNumber(readNs)} ns`);
    for (const cell of cells) {
      const index = targets.findIndex(({ name }) => name === cell.gateway);
      const sampler = samplers[index - without.length];
      sampler?.resume();
      const cpuBefore = cpuMs(targets[index]!);
      const result = await load(targets[index]!, cell);
      cell.rounds.push({ ...result, gatewayCpuMs: cpuMs(targets[index]!) - cpuBefore });
      sampler?.pause();
      printRound(round, cell);
    }
  }
  return cells;
}

function cpuMs({ processes }: GatewayUnderTest): number {
  return processes.reduce((sum, { pid }) => sum + (sampleProcess(pid)?.cpuMs ?? 0), 0);
}

function descriptorsOf(gateway: GatewayUnderTest | undefined): number {
  const open = gateway?.processes.map(({ pid }) => sampleProcess(pid)?.descriptors ?? 0) ?? [];
  return open.reduce((sum, each) => sum + each, 0);
}

function profileFlags(): readonly string[] {
  const folder = options["cpu-profile"];
  return folder === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${resolve(folder)}`];
}

function load(
  target: GatewayUnderTest,
  { stream, concurrency, openRate }: Pick<Cell, "stream" | "concurrency" | "openRate">,
  unmeasuredMs = warmupMs,
): Promise<LoadResult> {
  const { origin, path, headers } = target;
  const body = mockRequest(stream);
  const times = { warmupMs: unmeasuredMs, durationMs };
  const spec = { origin, path, headers, body, stream, concurrency, openRate, ...times };
  const logFile = join(benchFolder, "logs/load.log");
  return runLoad({ ...spec, expectedText: mockText }, cores.rest, logFile);
}

function printRound(round: number, cell: Cell): void {
  const result = cell.rounds.at(-1)!;
  const how = cell.openRate === undefined ? `c=${cell.concurrency}` : "half load";
  const what = `${cell.stream ? "stream" : "whole "} ${how}`;
  const rate = `${formatNumber(result.requestsPerSecond)} requests/s`;
  const wrong = result.failures > 0 ? `, ${result.failures} FAILED: ${result.firstFailure}` : "";
  console.log(`round ${round}  ${what.padEnd(16)}  ${cell.gateway.padEnd(15)}  ${rate}${wrong}`);
}

function summarizeCell(cell: Cell): CellFigures {
  const { gateway, stream, concurrency, openRate, rounds: results } = cell;
  const middle = (pick: (result: Cell["rounds"][number]) => number) => median(results.map(pick));
  const sum = (pick: (result: LoadResult) => number) => results.map(pick).reduce((a, b) => a + b);
  return {
    gateway,
    stream,
    concurrency,
    openRate,
    requestsPerSecond: middle((result) => result.requestsPerSecond),
    cpuMicrosPerRequest: middle((result) => (result.gatewayCpuMs * 1000) / result.allRequests),
    p50Ms: middle((result) => result.latencyMs.p50),
    p99Ms: middle((result) => result.latencyMs.p99),
    firstTextP50Ms: middle((result) => result.firstTextMs.p50),
    deltasPerSecond: middle((result) => result.deltasPerSecond),
    framesPerSecond: middle((result) => result.framesPerSecond),
    lostDeltas: sum((result) => result.lostDeltas),
    failures: sum((result) => result.failures),
    firstFailure: results.find((result) => result.firstFailure)?.firstFailure ?? "",
  };
}

function printFigures(figures: readonly CellFigures[]): void {
  printTable(
    "Whole answers, median of the rounds",
    ["gateway", "c", "requests/s", "CPU us/request", "p50 ms", "p99 ms", "failed"],
    figures
      .filter(({ stream }) => !stream)
      .map((f) => [
        f.gateway,
        f.concurrency,
        f.requestsPerSecond,
        f.cpuMicrosPerRequest,
        f.p50Ms,
        f.p99Ms,
        f.failures,
      ]),
  );
  printTable(
    "Streams of 64 deltas, median of the rounds",
    [
      "gateway",
      "c",
      "deltas/s",
      "frames/s",
      "CPU us/stream",
      "first text p50 ms",
      "whole p50 ms",
      "lost",
      "failed",
    ],
    figures
      .filter(({ stream }) => stream)
      .map((f) => [
        f.gateway,
        f.concurrency,
        f.deltasPerSecond,
        f.framesPerSecond,
        f.cpuMicrosPerRequest,
        f.firstTextP50Ms,
        f.p50Ms,
        f.lostDeltas,
        f.failures,
      ]),
  );
}

function printHalfLoad(figures: readonly CellFigures[]): void {
  printTable(
    "Requests at random times, half of what each gateway answers at the most",
    [
      "answers",
      "gateway",
      "requests/s",
      "CPU us/request",
      "first text p50 ms",
      "p50 ms",
      "p99 ms",
      "failed",
    ],
    figures.map((f) => [
      f.stream ? "streams" : "whole",
      f.gateway,
      f.requestsPerSecond,
      f.cpuMicrosPerRequest,
      f.stream ? f.firstTextP50Ms : "-",
      f.p50Ms,
      f.p99Ms,
      f.failures,
    ]),
  );
}

interface Names {
  readonly direct: string;
  readonly ours: string | undefined;
  readonly peer: string | undefined;
}

/** What load leaves in our gateway. */
interface Kept {
  readonly isFlat: boolean;
  /** More than before the load. */
  readonly descriptors: number;
}

/** The product's bars against the peer; without a peer only the absolute ones. */
function judge(
  figures: readonly CellFigures[],
  { direct, ours, peer }: Names,
  { isFlat, descriptors }: Kept,
): readonly Verdict[] {
  if (ours === undefined) return [];
  const of = (gateway: string, concurrency: number) =>
    figures.find((f) => f.gateway === gateway && f.concurrency === concurrency && !f.stream)!;
  const versus = concurrencies.flatMap((concurrency): Verdict[] => {
    if (peer === undefined) return [];
    const [base, own, other] = [direct, ours, peer].map((name) => of(name, concurrency));
    const rate = own!.requestsPerSecond / other!.requestsPerSecond;
    const added = (own!.p50Ms - base!.p50Ms) / (other!.p50Ms - base!.p50Ms);
    const ratio = (value: number) => `${formatNumber(value)}x`;
    return [
      {
        bar: `requests/s >= 4x the peer's at c=${concurrency}`,
        measured: ratio(rate),
        pass: rate >= 4,
      },
      {
        bar: `added p50 <= 0.3x the peer's at c=${concurrency}`,
        measured: ratio(added),
        pass: added <= 0.3,
      },
    ];
  });
  const own = figures.filter(({ gateway }) => gateway === ours);
  const lost = own.reduce((sum, { lostDeltas }) => sum + lostDeltas, 0);
  const failures = own.reduce((sum, cell) => sum + cell.failures, 0);
  return [
    ...versus,
    { bar: "no delta of a stream lost", measured: `${lost} lost`, pass: lost === 0 },
    { bar: "no request failed", measured: `${failures} failed`, pass: failures === 0 },
    { bar: "memory flat", measured: isFlat ? "flat" : "grows", pass: isFlat },
    {
      bar: `descriptors left open <= ${maxMoreDescriptors}`,
      measured: `${descriptors}`,
      pass: descriptors <= maxMoreDescriptors,
    },
  ];
}
