import { printComparison } from "./inference/comparison.ts";
import { measureConstrained, printConstrained } from "./inference/constrained.ts";
import {
  compareDecoding,
  DETERMINISTIC,
  type DecodingChange,
  DRAFTS,
} from "./inference/decoding.ts";
import { llamaServerProgram } from "./inference/llama-server.ts";
import { pullDemoWeights } from "./inference/model-file.ts";
import { masterOverhead, type OverheadResult } from "./inference/overhead.ts";
import { requantizedModel } from "./inference/requantized-model.ts";
import { type MeasuredRound, measureRounds } from "./inference/rounds.ts";
import { compareRouting } from "./inference/routing.ts";
import {
  type InferenceServer,
  oursAt,
  peerAt,
  startLlamaServer,
  startOurs,
} from "./inference/servers.ts";
import { withCleanup } from "./support/child-process.ts";
import { numberList, readOptions } from "./support/command-line.ts";
import { heddleUp, type RunningHeddle } from "./support/heddle-up.ts";
import { writeReport } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { formatNumber, printTable, printVerdicts, type Verdict } from "./support/table.ts";

// Our whole path (HTTP, master, gRPC, engine) against any OpenAI-compatible server on the same
// weights, in interleaved rounds.

const usage = `npm run bench:inference -- [--peer URL | --llama-server PROGRAM, else built from the engine's source]
  [--model-file FILE.gguf, else the demo weights] [--quantization q4_0|q4_1|q8_0] [--rounds N] [--threads N] [--concurrency 1,4,8,16] [--tokens N] [--eos 0,2]
  [--ours URL --key KEY --model ID] [--only ours|peer|pair|overhead|routing|schema|drafts|deterministic]`;
const options = readOptions(usage, [
  "model-file",
  "quantization",
  "peer",
  "llama-server",
  "rounds",
  "threads",
  "concurrency",
  "tokens",
  "eos",
  "ours",
  "key",
  "model",
  "only",
]);
const rounds = Number(options["rounds"] ?? 5);
const threads = Number(options["threads"] ?? 1);
const plan = {
  rounds,
  concurrencies: numberList(options["concurrency"] ?? "1,4,8,16"),
  maxTokens: Number(options["tokens"] ?? 64),
  bannedTokens: numberList(options["eos"] ?? "0,2"),
};

await withCleanup(async () => {
  if (options["only"] === "routing") return measureRouting();
  if (options["only"] === "drafts") return measureDrafts();
  if (options["only"] === "deterministic") return measureDeterministic();
  if (options["only"] === "overhead") {
    const cluster = await heddleUp(["--profile", "tiny"]);
    const overhead = await measureOverhead(cluster);
    const verdicts = [judgeOverhead(overhead)];
    printVerdicts(verdicts);
    writeReport(options, "inference", { overhead, verdicts });
    return;
  }
  if (options["only"] === "schema") return measureSchema();
  const { ours, overhead } = await startOrFindOurs();
  const peer = await startOrFindPeer();
  const servers = [ours, peer].filter((server) => server !== undefined);
  if (servers.length === 0) throw new Error(`nothing to measure\nusage: ${usage}`);
  const measured = await measureRounds(servers, plan);
  const verdicts = printComparison(ours?.name, peer?.name, measured, plan.concurrencies);
  const all = [...verdicts, ...(overhead ? [judgeOverhead(overhead)] : []), judgeIdle(measured)];
  printVerdicts(all);
  writeReport(options, "inference", { threads, plan, overhead, verdicts: all, measured });
});

async function startOrFindOurs(): Promise<{
  readonly ours: InferenceServer | undefined;
  readonly overhead: OverheadResult | undefined;
}> {
  if (options["only"] === "peer") return { ours: undefined, overhead: undefined };
  if (options["ours"] !== undefined) {
    const ours = oursAt(options["ours"], options["key"] ?? "", options["model"] ?? "");
    return { ours, overhead: undefined };
  }
  const { server, cluster } = await startOurs({ modelFile: await modelFile(), threads });
  // Each server alone, for short runs.
  if (options["only"] === "pair") return { ours: server, overhead: undefined };
  return { ours: server, overhead: await measureOverhead(cluster) };
}

async function measureOverhead(cluster: RunningHeddle): Promise<OverheadResult> {
  const overhead = await masterOverhead(cluster);
  printTable(
    "Time to first token, tiny model (ms): what the master adds to its worker's own session",
    ["path", "requests", "p50", "p99"],
    [
      [
        "HTTP -> master -> gRPC -> worker",
        overhead.http.count,
        overhead.http.p50,
        overhead.http.p99,
      ],
      ["gRPC -> worker", overhead.session.count, overhead.session.p50, overhead.session.p99],
    ],
  );
  return overhead;
}

async function measureSchema(): Promise<void> {
  const { server: ours } = await startOurs({ modelFile: await modelFile(), threads });
  const peer = await startOrFindPeer();
  const turns = await measureConstrained(peer === undefined ? [ours] : [ours, peer], plan);
  const verdicts = printConstrained(ours.name, peer?.name, turns);
  printVerdicts(verdicts);
  writeReport(options, "inference", { threads, plan, verdicts, turns });
}

async function measureRouting(): Promise<void> {
  const measured = await compareRouting(await modelFile(), rounds);
  printTable(
    "Two workers, prompts that share beginnings: mean time to first token (ms), prompt tokens computed",
    ["round", "in turns", "by prefix", "ratio", "computed in turns", "by prefix", "ratio"],
    measured.map(({ inTurn, byPrefix }, i) => [
      `${i + 1}`,
      inTurn.meanFirstTokenMs,
      byPrefix.meanFirstTokenMs,
      byPrefix.meanFirstTokenMs / inTurn.meanFirstTokenMs,
      inTurn.computedTokens,
      byPrefix.computedTokens,
      byPrefix.computedTokens / inTurn.computedTokens,
    ]),
  );
  const verdicts = (["meanFirstTokenMs", "computedTokens"] as const).map((figure) => {
    const ratio = median(measured.map(({ inTurn, byPrefix }) => byPrefix[figure] / inTurn[figure]));
    const what = figure === "computedTokens" ? "prompt tokens computed" : "first token";
    return {
      bar: `${what} by prefix < 1.0x of that in turns`,
      measured: `${formatNumber(ratio)}x`,
      pass: ratio < 1,
    };
  });
  printVerdicts(verdicts);
  writeReport(options, "inference", { rounds: measured, verdicts });
}

async function measureDecoding(title: string, change: DecodingChange) {
  const program = change.peerFlags.length > 0 ? await peerProgram() : undefined;
  const gains = await compareDecoding(await modelFile(), rounds, change, program);
  printTable(
    title,
    ["workload", "server", "tokens/s", "speed", "CPU", "answers"],
    gains.map(({ workload, server, tokensPerSecond, speed, cpu, isEqual }) => [
      workload,
      server,
      tokensPerSecond,
      `${formatNumber(speed)}x`,
      `${formatNumber(cpu)}x`,
      isEqual ? "equal" : "different",
    ]),
  );
  return gains;
}

/** What deterministic answers cost; there is no bar. */
async function measureDeterministic(): Promise<void> {
  const gains = await measureDecoding("Deterministic against usual, medians", DETERMINISTIC);
  writeReport(options, "inference", { gains, verdicts: [] });
}

async function measureDrafts(): Promise<void> {
  const gains = await measureDecoding("Decoding with drafts against without, medians", DRAFTS);
  const [copied, ...others] = gains.filter(
    ({ server, workload }) => server === "Heddle" && !workload.includes("4 at once"),
  );
  const least = Math.min(...others.map(({ cpu }) => cpu));
  const verdicts = [
    {
      bar: "fields of the prompt, tokens a CPU second >= 1.5x",
      measured: `${formatNumber(copied!.cpu)}x`,
      pass: copied!.cpu >= 1.5,
    },
    {
      bar: "free text, tokens a CPU second >= 0.97x",
      measured: `${formatNumber(least)}x at least`,
      pass: least >= 0.97,
    },
  ];
  printVerdicts(verdicts);
  writeReport(options, "inference", { gains, verdicts });
}

async function startOrFindPeer(): Promise<InferenceServer | undefined> {
  if (options["only"] === "ours") return undefined;
  if (options["peer"] !== undefined) return peerAt(options["peer"], options["model"] ?? "default");
  const program = await peerProgram();
  if (program === undefined) return undefined;
  return startLlamaServer(program, { modelFile: await modelFile(), threads });
}

async function peerProgram(): Promise<string | undefined> {
  if (options["llama-server"] !== undefined) return options["llama-server"];
  try {
    return await llamaServerProgram();
  } catch (error) {
    console.log(
      `SKIPPED: llama-server cannot be built (${String(error)}); only our own figures follow.`,
    );
    return undefined;
  }
}

/** The file that both serve: by default the demo weights, from the cache or pulled into it. */
async function modelFile(): Promise<string> {
  const file = options["model-file"] ?? (await pullDemoWeights());
  const quantization = options["quantization"];
  return quantization === undefined ? file : requantizedModel(file, quantization);
}

function judgeOverhead({ http, session }: OverheadResult): Verdict {
  const added = http.p50 - session.p50;
  return {
    bar: "master and HTTP add <= 1 ms p50 to the first token",
    measured: `${formatNumber(added)} ms`,
    pass: added <= 1,
  };
}

/** A server that works while the other is measured would falsify both. */
function judgeIdle(measured: readonly MeasuredRound[]): Verdict {
  const idle = Math.max(0, ...measured.map(({ idleCpuPercent }) => idleCpuPercent));
  return {
    bar: "the idle server takes <= 5 % of a core",
    measured: `${formatNumber(idle)} % at most`,
    pass: idle <= 5,
  };
}
