import { once } from "node:events";
import { createReadStream, mkdirSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import type { CuttableModel } from "@heddle/engines/shards/cut-rules";
import { type PlannedStage, planStages } from "@heddle/engines/shards/plan-stages";
import { cutShard } from "@heddle/engines/shards/shard-cut";
import type { StageOptions, StageRow } from "@heddle/engines/shards/stage-model";
import { writeShard } from "@heddle/engines/shards/testing/write-shard";
import type { StageResult, StageWork } from "./stage-thread.ts";

/** Tokens of each sequence before the measurement. */
export const PROMPT_TOKENS = 32;
export const BENCH_KV_TOKENS = 8_192;
const MAX_SEQUENCES = 32;

const NO_OVERHEAD = { earlier: 0, last: 0 };

/** The plan that has as many stages: the memory of equal workers is the least that allows it. */
export function evenPlan(model: CuttableModel, stages: number): readonly PlannedStage[] {
  const demand = { kvTokens: BENCH_KV_TOKENS, overhead: NO_OVERHEAD, maxStages: stages };
  for (let memoryBytes = 2 ** 20; ; memoryBytes *= 1.01) {
    const workers = Array.from({ length: stages }, (_, i) => {
      return { id: `${i + 1}`, name: `stage ${i + 1}`, memoryBytes };
    });
    const plan = planStages(model, workers, demand);
    if (plan) return plan;
  }
}

/** Stages of a model in threads of their own, each with one thread of computation. */
export class Pipeline {
  readonly #stages: readonly StageThread[];

  private constructor(stages: readonly StageThread[]) {
    this.#stages = stages;
  }

  static async open(
    model: CuttableModel,
    modelFile: string,
    { plan, folder }: { plan: readonly PlannedStage[]; folder: string },
  ): Promise<Pipeline> {
    mkdirSync(folder, { recursive: true });
    const stages: StageThread[] = [];
    for (const [i, { from, to }] of plan.entries()) {
      const path = plan.length === 1 ? modelFile : join(folder, `${plan.length}-${i}.gguf`);
      if (plan.length > 1) {
        await writeShard(path, cutShard(model, { from, to }), (start, bytes) =>
          createReadStream(modelFile, { start, end: start + bytes - 1 }),
        );
      }
      const options: StageOptions = {
        path,
        rule: model.rule,
        from,
        to,
        isLast: to === model.blocks,
        threads: 1,
        kvTokens: BENCH_KV_TOKENS,
        maxSequences: MAX_SEQUENCES,
        batchTokens: 512,
      };
      stages.push(await StageThread.open(options));
    }
    return new Pipeline(stages);
  }

  /**
   * Decodes `steps` tokens for each of `sequences`, in `groups` that are under way at once. Returns
   * each sequence's tokens, and the tokens a second after the prompts.
   */
  async run({
    sequences,
    groups,
    steps,
  }: Load): Promise<{ tokens: number[][]; perSecond: number }> {
    const tokens = Array.from({ length: sequences }, () => [] as number[]);
    for (let sequence = 0; sequence < sequences; sequence++) {
      const prompt = Array.from({ length: PROMPT_TOKENS }, (_, position) => ({
        token: 1_000 + ((sequence * 977 + position * 131) % 20_000),
        position,
        sequence,
        output: position === PROMPT_TOKENS - 1,
      }));
      tokens[sequence]!.push(...(await this.#decode(prompt)));
    }
    const startMs = performance.now();
    await Promise.all(
      Array.from({ length: groups }, async (_, group) => {
        const own = [...tokens.keys()].filter((sequence) => sequence % groups === group);
        for (let step = 0; step < steps; step++) {
          const rows = own.map((sequence): StageRow => {
            const position = PROMPT_TOKENS + step;
            return { token: tokens[sequence]!.at(-1)!, position, sequence, output: true };
          });
          const next = await this.#decode(rows);
          for (const [i, sequence] of own.entries()) tokens[sequence]!.push(next[i]!);
        }
      }),
    );
    const seconds = (performance.now() - startMs) / 1_000;
    return { tokens, perSecond: (sequences * steps) / seconds };
  }

  async close(): Promise<void> {
    await Promise.all(this.#stages.map((stage) => stage.close()));
  }

  async #decode(rows: readonly StageRow[]): Promise<readonly number[]> {
    let result: StageResult | undefined;
    for (const stage of this.#stages) result = await stage.decode({ rows, hidden: result?.hidden });
    return result!.tokens;
  }
}

/** The main thread's side of a stage. */
class StageThread {
  readonly #thread: Worker;
  /** The thread answers in order. */
  readonly #waiting: ((result: StageResult) => void)[] = [];

  private constructor(thread: Worker) {
    this.#thread = thread;
    thread.on("message", (result: StageResult) => this.#waiting.shift()?.(result));
  }

  static async open(options: StageOptions): Promise<StageThread> {
    const url = new URL("stage-thread.ts", import.meta.url);
    const thread = new Worker(url, { workerData: options });
    await once(thread, "message");
    return new StageThread(thread);
  }

  decode(work: StageWork): Promise<StageResult> {
    const { promise, resolve } = Promise.withResolvers<StageResult>();
    this.#waiting.push(resolve);
    this.#thread.postMessage(work, work.hidden ? [work.hidden.buffer as ArrayBuffer] : []);
    return promise;
  }

  async close(): Promise<void> {
    const ended = once(this.#thread, "exit");
    this.#thread.postMessage("close");
    await ended;
  }
}

/** What a pipeline is measured with. */
export interface Load {
  readonly sequences: number;
  readonly groups: number;
  readonly steps: number;
}
