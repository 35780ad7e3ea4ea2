import { createReadStream, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type { EngineEvent } from "@heddle/contracts/engine";
import { startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import type { CuttableModel } from "@heddle/engines/shards/cut-rules";
import { LocalStages } from "@heddle/engines/shards/ring/local-stages";
import { cutShard } from "@heddle/engines/shards/shard-cut";
import { writeShard } from "@heddle/engines/shards/testing/write-shard";
import { BENCH_KV_TOKENS, evenPlan, PROMPT_TOKENS } from "./pipeline.ts";
import type { RatedServer } from "./rated-rounds.ts";

export const MAX_SEQUENCES = 32;
/** A prompt and its answer. */
const CONTEXT_TOKENS = 256;

/** How a model is divided for a measurement. */
interface StagedBench {
  readonly name: string;
  readonly count: number;
  readonly folder: string;
  readonly callsAtOnce?: number;
  readonly way?: ((frames: Duplex, stage: number) => Duplex) | undefined;
}

/** The engine that serves a model, whole or with its stages in processes of this machine. */
export class BenchEngine implements RatedServer {
  readonly name: string;
  readonly #engine: Awaited<ReturnType<typeof startLlamaEngine>>;
  readonly #stages: LocalStages | undefined;
  readonly #take: { onEvents: (events: readonly EngineEvent[]) => void };
  #nextId = 1;

  private constructor(
    name: string,
    engine: Awaited<ReturnType<typeof startLlamaEngine>>,
    stages: LocalStages | undefined,
    take: { onEvents: (events: readonly EngineEvent[]) => void },
  ) {
    this.name = name;
    this.#engine = engine;
    this.#stages = stages;
    this.#take = take;
  }

  static async open(
    model: CuttableModel,
    modelFile: string,
    { name, count, folder, callsAtOnce, way }: StagedBench,
  ): Promise<BenchEngine> {
    mkdirSync(folder, { recursive: true });
    const files = count === 1 ? [modelFile] : await cut(model, modelFile, { count, folder });
    const sizes = {
      rule: model.rule,
      threads: 1,
      kvTokens: BENCH_KV_TOKENS,
      maxSequences: MAX_SEQUENCES,
    };
    const ranges = count === 1 ? [] : evenPlan(model, count);
    const starts = files
      .slice(0, -1)
      .map((path, i) => ({ path, ...sizes, from: ranges[i]!.from, to: ranges[i]!.to }));
    const stages = count === 1 ? undefined : new LocalStages(starts, { callsAtOnce, way });
    const take = { onEvents: (_: readonly EngineEvent[]) => {} };
    const options = {
      modelPath: files.at(-1)!,
      options: {
        threads: 1,
        contextTokens: CONTEXT_TOKENS,
        kvTokens: BENCH_KV_TOKENS,
        maxSequences: MAX_SEQUENCES,
        // Each token is a step, as it is for the others.
        decoding: { draftTokens: 0 },
      },
      sink: (events: readonly EngineEvent[]) => take.onEvents(events),
    };
    const engine = await startLlamaEngine(options, stages);
    return new BenchEngine(name, engine, stages, take);
  }

  /**
   * Tokens a second while as many answers of `steps` tokens are generated at once. It counts from when
   * each has its first token until one has its last: prompts do not count, as they do not for the others.
   */
  async rate(sequences: number, steps: number): Promise<number> {
    const left = new Set<number>();
    const begun = new Set<number>();
    let tokens = 0;
    let [beganMs, endedMs] = [0, 0];
    const done = new Promise<void>((resolve, reject) => {
      this.#take.onEvents = (events) => {
        for (const event of events) {
          if (event.type === "failed") reject(new Error(event.error.message));
          if (event.type === "done") {
            left.delete(event.id);
            endedMs ||= performance.now();
          }
          if (event.type !== "delta") continue;
          if (beganMs > 0 && endedMs === 0) tokens += event.tokens;
          begun.add(event.id);
        }
        if (beganMs === 0 && begun.size === sequences) beganMs = performance.now();
        if (left.size === 0) resolve();
      };
    });
    for (let i = 0; i < sequences; i++) {
      const id = this.#nextId++;
      left.add(id);
      const at = (position: number) => 1_000 + ((id * 977 + position * 131) % 20_000);
      const tokens = Array.from({ length: PROMPT_TOKENS }, (_, position) => at(position));
      this.#engine.submit(
        id,
        {
          input: { kind: "tokens", tokens },
          sampling: {
            temperature: 0,
            topP: 1,
            presencePenalty: 0,
            frequencyPenalty: 0,
            logitBias: [],
          },
          choices: 1,
          maxTokens: steps,
          minTokens: steps,
          stop: [],
          format: "text",
        },
        { fairKey: "bench", cacheSalt: "", deadlineMs: 0, priority: 0 },
      );
    }
    await done;
    return (tokens * 1_000) / (endedMs - beganMs);
  }

  async close(): Promise<void> {
    await this.#engine.close();
    await this.#stages?.close();
  }
}

async function cut(
  model: CuttableModel,
  modelFile: string,
  { count, folder }: { count: number; folder: string },
): Promise<string[]> {
  const files: string[] = [];
  for (const [i, range] of evenPlan(model, count).entries()) {
    const path = join(folder, `engine-${count}-${i}.gguf`);
    await writeShard(path, cutShard(model, range), (start, bytes) =>
      createReadStream(modelFile, { start, end: start + bytes - 1 }),
    );
    files.push(path);
  }
  return files;
}
