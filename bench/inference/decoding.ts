import { pathToFileURL } from "node:url";
import { heddleUp, type RunningHeddle } from "../support/heddle-up.ts";
import { sampleProcess } from "../support/proc-files.ts";
import { randomWords } from "../support/prompts.ts";
import { median } from "../support/statistics.ts";

/** What answers cost as usual over what they cost with other options; above 1 those are faster. */
export interface DecodingGain {
  readonly workload: string;
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
  readonly workloads: readonly Workload[];
}

interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
  readonly texts: readonly string[];
}

const usual = "bench-usual";
const changed = "bench-changed";
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

/** Both ways alternate within seconds. */
export async function compareDecoding(
  modelFile: string,
  rounds: number,
  change: DecodingChange,
): Promise<readonly DecodingGain[]> {
  const cluster = await heddleUp(["--profile", "tiny"]);
  const source = pathToFileURL(modelFile).href;
  const options = { threads: 1, max_sequences: 4, context_tokens: 2_048, kv_tokens: 8_192 };
  for (const [id, decoding] of [
    [usual, change.usual],
    [changed, change.changed],
  ] as const) {
    await cluster.api.serve({ id, source, options: { ...options, decoding } }, 120_000);
  }
  const key = await cluster.api.createLimitedKey();
  const gains: DecodingGain[] = [];
  for (const workload of change.workloads) {
    const pairs: { readonly usual: Cost; readonly changed: Cost }[] = [];
    // The first round only warms up: the engines learn what a drafted token costs.
    for (let round = 0; round <= rounds; round += 1) {
      const costs = new Map<string, Cost>();
      const order = round % 2 === 0 ? [usual, changed] : [changed, usual];
      for (const model of order) {
        costs.set(model, await costOf(cluster, { key, model, workload, round }));
      }
      const pair = { usual: costs.get(usual)!, changed: costs.get(changed)! };
      if (round > 0) pairs.push(pair);
    }
    const gain = {
      workload: workload.name,
      speed: median(pairs.map((pair) => pair.usual.ms / pair.changed.ms)),
      cpu: median(pairs.map((pair) => pair.usual.cpuMs / pair.changed.cpuMs)),
      isEqual: pairs.every((pair) => pair.usual.texts.join() === pair.changed.texts.join()),
    };
    console.log(gain);
    gains.push(gain);
  }
  return gains;
}

interface Turn {
  readonly key: string;
  readonly model: string;
  readonly workload: Workload;
  readonly round: number;
}

async function costOf(cluster: RunningHeddle, turn: Turn): Promise<Cost> {
  const { maxTokens, isCached } = turn.workload;
  const prompts = turn.workload.prompts(turn.round);
  if (isCached) {
    await Promise.all(prompts.map((prompt) => complete(cluster, turn, { prompt, maxTokens: 1 })));
  }
  const cpuBefore = cpuMs(cluster);
  const startedAt = performance.now();
  const texts = await Promise.all(
    prompts.map((prompt) => complete(cluster, turn, { prompt, maxTokens })),
  );
  return { ms: performance.now() - startedAt, cpuMs: cpuMs(cluster) - cpuBefore, texts };
}

async function complete(
  cluster: RunningHeddle,
  { key, model, workload }: Turn,
  { prompt, maxTokens }: { readonly prompt: string; readonly maxTokens: number },
): Promise<string> {
  const response = await fetch(`${cluster.api.url}/api/v1/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model,
      prompt,
      max_tokens: maxTokens,
      ignore_eos: true,
      ...workload.sampling,
    }),
  });
  if (!response.ok) throw new Error(`${model}: ${await response.text()}`);
  const answer = (await response.json()) as { readonly choices: readonly { text: string }[] };
  return answer.choices[0]!.text;
}

function cpuMs(cluster: RunningHeddle): number {
  return cluster.processes().reduce((sum, { pid }) => sum + (sampleProcess(pid)?.cpuMs ?? 0), 0);
}

/** Records whose fields the answer repeats, as extraction does; each prompt has its own. */
function copies(count: number): (round: number) => readonly string[] {
  return (round) =>
    Array.from({ length: count }, (_, i) => {
      const rows = Array.from({ length: 5 }, (_row, row) => {
        const [first, second, city] = randomWords(3, 10_000 * round + 100 * i + row).split(" ");
        return `{"full_name": "${first} ${second}", "home_city": "${city}", "customer": ${7_919 * (row + 1) + 31 * i + round}}`;
      });
      return `Input:\n${rows.join("\n")}\nThe same again:\n${rows[0]}\n`;
    });
}
