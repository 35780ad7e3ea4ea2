import { pathToFileURL } from "node:url";
import { heddleUp, type RunningHeddle } from "../support/heddle-up.ts";
import { sampleProcess } from "../support/proc-files.ts";
import { randomWords } from "../support/prompts.ts";
import { median } from "../support/statistics.ts";

/** What answers cost without drafts over what they cost with them; above 1 drafts are faster. */
export interface DraftGain {
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
}

interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
  readonly texts: readonly string[];
}

const plain = "bench-no-drafts";
const drafting = "bench-drafts";
const greedy = { temperature: 0 };

const words = (count: number) => (round: number) =>
  Array.from({ length: count }, (_, i) => randomWords(48, 300_000 + 100 * round + i));

const workloads: readonly Workload[] = [
  { name: "fields of the prompt, 1 at once", maxTokens: 160, sampling: greedy, prompts: copies(1) },
  { name: "fields of the prompt, 4 at once", maxTokens: 80, sampling: greedy, prompts: copies(4) },
  { name: "free text, greedy", maxTokens: 96, sampling: greedy, prompts: words(1) },
  {
    name: "free text, temperature 0.8",
    maxTokens: 96,
    sampling: { temperature: 0.8, seed: 7 },
    prompts: words(1),
  },
  {
    name: "free text, temperature 0.8, 4 at once",
    maxTokens: 48,
    sampling: { temperature: 0.8, seed: 7 },
    prompts: words(4),
  },
];

/**
 * The same file served with and without drafts. Each prompt is cached by both before it is measured,
 * so that only decoding counts, and both alternate within seconds.
 */
export async function compareDrafts(
  modelFile: string,
  rounds: number,
): Promise<readonly DraftGain[]> {
  const cluster = await heddleUp(["--profile", "tiny"]);
  const source = pathToFileURL(modelFile).href;
  const options = { threads: 1, max_sequences: 4, context_tokens: 2_048, kv_tokens: 8_192 };
  for (const [id, drafts] of [
    [plain, { decoding: { draft_tokens: 0 } }],
    [drafting, {}],
  ] as const) {
    await cluster.api.serve({ id, source, options: { ...options, ...drafts } }, 120_000);
  }
  const key = await cluster.api.createLimitedKey();
  const gains: DraftGain[] = [];
  for (const workload of workloads) {
    const pairs: { readonly plain: Cost; readonly drafting: Cost }[] = [];
    // The first round only warms up: the engines learn what a drafted token costs.
    for (let round = 0; round <= rounds; round += 1) {
      const costs = new Map<string, Cost>();
      const order = round % 2 === 0 ? [plain, drafting] : [drafting, plain];
      for (const model of order) {
        costs.set(model, await costOf(cluster, { key, model, workload, round }));
      }
      const pair = { plain: costs.get(plain)!, drafting: costs.get(drafting)! };
      if (round > 0) pairs.push(pair);
    }
    const gain = {
      workload: workload.name,
      speed: median(pairs.map((pair) => pair.plain.ms / pair.drafting.ms)),
      cpu: median(pairs.map((pair) => pair.plain.cpuMs / pair.drafting.cpuMs)),
      isEqual: pairs.every((pair) => pair.plain.texts.join() === pair.drafting.texts.join()),
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
  const { maxTokens } = turn.workload;
  const prompts = turn.workload.prompts(turn.round);
  await Promise.all(prompts.map((prompt) => complete(cluster, turn, { prompt, maxTokens: 1 })));
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
