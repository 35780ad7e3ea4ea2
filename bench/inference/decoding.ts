import { pathToFileURL } from "node:url";
import { heddleUp } from "../support/heddle-up.ts";
import { sampleProcess } from "../support/proc-files.ts";
import type { WatchedProcess } from "../support/process-sampler.ts";
import { randomWords } from "../support/prompts.ts";
import { median } from "../support/statistics.ts";
import { startLlamaServer } from "./servers.ts";

/** What answers cost as usual over what they cost with other options; above 1 those are faster. */
export interface DecodingGain {
  readonly server: string;
  readonly workload: string;
  /** With the other options. */
  readonly tokensPerSecond: number;
  readonly speed: number;
  readonly cpu: number;
  /** Whether all answers were the same. */
  readonly isEqual: boolean;
}

interface Workload {
  readonly name: string;
  readonly maxTokens: number;
  readonly sampling: object;
  readonly prompts: (round: number) => readonly string[];
  /** Whether the prompts are computed before the measurement, so that only decoding counts. */
  readonly isCached: boolean;
}

/** Two ways to serve the same file, by `options.decoding`. */
export interface DecodingChange {
  readonly usual: object;
  readonly changed: object;
  /** What makes the same change of a llama-server; empty where it cannot. */
  readonly peerFlags: readonly string[];
  readonly workloads: readonly Workload[];
}

/** One of the two ways, on one server. */
interface Way {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly model: string;
  readonly processes: () => readonly WatchedProcess[];
}

/** A server with its two ways. */
interface Compared {
  readonly server: string;
  readonly usual: Way;
  readonly changed: Way;
}

interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
  readonly texts: readonly string[];
}

interface CostPair {
  readonly usual: Cost;
  readonly changed: Cost;
}

const usual = "bench-usual";
const changed = "bench-changed";
const threads = 1;
const greedy = { temperature: 0 };
const drawn = { temperature: 0.8, seed: 7 };

const words =
  (count: number, length = 48) =>
  (round: number) =>
    Array.from({ length: count }, (_, i) => randomWords(length, 300_000 + 100 * round + i));

/** A workload that decodes `maxTokens` for each prompt. */
const decoding = (
  name: string,
  maxTokens: number,
  sampling: object,
  prompts: Workload["prompts"],
): Workload => ({ name, maxTokens, sampling, prompts, isCached: true });

/** Without drafts, and with them. */
export const DRAFTS: DecodingChange = {
  usual: { draft_tokens: 0 },
  changed: {},
  peerFlags: ["--spec-type", "ngram-simple"],
  workloads: [
    decoding("fields of the prompt, 1 at once", 160, greedy, copies(1)),
    decoding("fields of the prompt, 4 at once", 80, greedy, copies(4)),
    decoding("free text, greedy", 96, greedy, words(1)),
    decoding("free text, temperature 0.8", 96, drawn, words(1)),
    decoding("free text, temperature 0.8, 4 at once", 48, drawn, words(4)),
  ],
};

/** As usual, and deterministic. */
export const DETERMINISTIC: DecodingChange = {
  usual: {},
  changed: { deterministic: "always" },
  peerFlags: [],
  workloads: [
    {
      name: "prompts of 400 words",
      maxTokens: 1,
      sampling: greedy,
      prompts: words(1, 400),
      isCached: false,
    },
    // The rest of a prompt behind its last whole piece is computed again, so the answers are long.
    decoding("free text, greedy", 384, greedy, words(1)),
    decoding("free text, greedy, 4 at once", 384, greedy, words(4)),
  ],
};

/** Both ways of each server alternate within seconds; a llama-server's too where its program is given. */
export async function compareDecoding(
  modelFile: string,
  rounds: number,
  change: DecodingChange,
  peerProgram?: string,
): Promise<readonly DecodingGain[]> {
  const servers = [await ours(modelFile, change)];
  if (peerProgram !== undefined) servers.push(await peer(modelFile, change, peerProgram));
  const gains: DecodingGain[] = [];
  for (const workload of change.workloads) {
    const pairs = servers.map((): CostPair[] => []);
    // The first round only warms up: the engines learn what a drafted token costs.
    for (let round = 0; round <= rounds; round += 1) {
      for (const [at, server] of servers.entries()) {
        const pair = await costsOf(server, workload, round);
        if (round > 0) pairs[at]!.push(pair);
      }
    }
    for (const [at, { server }] of servers.entries()) {
      const gain = gainOf(server, workload, pairs[at]!);
      console.log(gain);
      gains.push(gain);
    }
  }
  return gains;
}

async function ours(modelFile: string, change: DecodingChange): Promise<Compared> {
  const cluster = await heddleUp(["--profile", "tiny"]);
  const source = pathToFileURL(modelFile).href;
  const options = { threads, max_sequences: 4, context_tokens: 2_048, kv_tokens: 8_192 };
  for (const [id, decoding] of [
    [usual, change.usual],
    [changed, change.changed],
  ] as const) {
    await cluster.api.serve({ id, source, options: { ...options, decoding } }, 120_000);
  }
  const url = `${cluster.api.url}/api`;
  const headers = { authorization: `Bearer ${await cluster.api.createLimitedKey()}` };
  const way = (model: string): Way => ({
    url,
    headers,
    model,
    processes: () => cluster.processes(),
  });
  return { server: "Heddle", usual: way(usual), changed: way(changed) };
}

async function peer(
  modelFile: string,
  { peerFlags }: DecodingChange,
  program: string,
): Promise<Compared> {
  const way = async (flags: readonly string[]): Promise<Way> => {
    const server = await startLlamaServer(program, { modelFile, threads }, flags);
    const { host, port } = server.origin;
    return { ...server, url: `http://${host}:${port}` };
  };
  return { server: "llama-server", usual: await way([]), changed: await way(peerFlags) };
}

async function costsOf(server: Compared, workload: Workload, round: number): Promise<CostPair> {
  const costs: Partial<Record<keyof CostPair, Cost>> = {};
  const order = round % 2 === 0 ? (["usual", "changed"] as const) : (["changed", "usual"] as const);
  for (const way of order) costs[way] = await costOf(server[way], workload, round);
  return costs as CostPair;
}

function gainOf(server: string, workload: Workload, pairs: readonly CostPair[]): DecodingGain {
  const tokens = workload.maxTokens * workload.prompts(0).length;
  return {
    server,
    workload: workload.name,
    tokensPerSecond: median(pairs.map((pair) => (tokens * 1000) / pair.changed.ms)),
    speed: median(pairs.map((pair) => pair.usual.ms / pair.changed.ms)),
    cpu: median(pairs.map((pair) => pair.usual.cpuMs / pair.changed.cpuMs)),
    isEqual: pairs.every((pair) => pair.usual.texts.join() === pair.changed.texts.join()),
  };
}

async function costOf(way: Way, workload: Workload, round: number): Promise<Cost> {
  const { maxTokens, isCached } = workload;
  const prompts = workload.prompts(round);
  const ask = (prompt: string, most: number) => complete(way, workload, prompt, most);
  if (isCached) await Promise.all(prompts.map((prompt) => ask(prompt, 1)));
  const cpuBefore = cpuMs(way);
  const startedAt = performance.now();
  const texts = await Promise.all(prompts.map((prompt) => ask(prompt, maxTokens)));
  return { ms: performance.now() - startedAt, cpuMs: cpuMs(way) - cpuBefore, texts };
}

async function complete(
  { url, headers, model }: Way,
  { sampling }: Workload,
  prompt: string,
  maxTokens: number,
): Promise<string> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ model, prompt, max_tokens: maxTokens, ignore_eos: true, ...sampling }),
  });
  if (!response.ok) throw new Error(`${model}: ${await response.text()}`);
  const answer = (await response.json()) as { readonly choices: readonly { text: string }[] };
  return answer.choices[0]!.text;
}

function cpuMs({ processes }: Way): number {
  return processes().reduce((sum, { pid }) => sum + (sampleProcess(pid)?.cpuMs ?? 0), 0);
}

/**
 * Records whose fields the answer repeats, as extraction does; each prompt has its own. The list comes
 * twice before it is begun again: a small model leaves one that it has seen once.
 */
function copies(count: number): (round: number) => readonly string[] {
  return (round) =>
    Array.from({ length: count }, (_, i) => {
      const rows = Array.from({ length: 7 }, (_row, row) => {
        const [first, second, city] = randomWords(3, 10_000 * round + 100 * i + row).split(" ");
        return `{"full_name": "${first} ${second}", "home_city": "${city}", "customer": ${7_919 * (row + 1) + 31 * i + round}}`;
      });
      const lists = [rows, rows, rows.slice(0, 2)].map((list) => `${list.join("\n")}\n`);
      return `Input:\n${lists.join("The same again:\n")}`;
    });
}
