import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineOptions } from "@heddle/contracts/engine";
import { type LlamaEngine, startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { LocalStages } from "@heddle/engines/shards/ring/local-stages";
import { readGguf } from "../../gguf/gguf-reader.ts";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { EngineSession, withPending } from "../../testing/engine-session.ts";
import { cuttableModel } from "../cut-rules.ts";
import { cutShard } from "../shard-cut.ts";
import { writeShard } from "./write-shard.ts";

const BLOCKS = 6;
/** Of every cache: fewer than four slots, so that the whole model's is one pool too. */
export const KV_TOKENS = 1_024;
export const OPTIONS: EngineOptions = {
  threads: 1,
  contextTokens: 512,
  kvTokens: KV_TOKENS,
  maxSequences: 4,
};

/** For tests: a tiny model whole, and cut at the given blocks into stages as processes. */
export class StagedSession extends EngineSession<LlamaEngine> {
  readonly whole: EngineSession<LlamaEngine>;
  readonly stages: LocalStages;
  /** The reason of each restart of the engine. */
  readonly crashes: readonly string[];
  readonly #folder: string;

  private constructor(
    [engine, pending]: ConstructorParameters<typeof EngineSession<LlamaEngine>>,
    parts: Pick<StagedSession, "whole" | "stages" | "crashes">,
    folder: string,
  ) {
    super(engine, pending);
    this.whole = parts.whole;
    this.stages = parts.stages;
    this.crashes = parts.crashes;
    this.#folder = folder;
  }

  static async open(cuts: readonly number[], silenceMs?: number): Promise<StagedSession> {
    const folder = mkdtempSync(join(tmpdir(), "heddle-stages-"));
    const path = join(folder, "whole.gguf");
    await writeTinyModel(path, { blocks: BLOCKS });
    const model = cuttableModel(await readGguf(path));
    const bounds = [0, ...cuts, BLOCKS];
    const files = bounds.slice(1).map((to) => join(folder, `to-${to}.gguf`));
    for (const [i, file] of files.entries()) {
      const cut = cutShard(model, { from: bounds[i]!, to: bounds[i + 1]! });
      await writeShard(file, cut, (start, bytes) =>
        createReadStream(path, { start, end: start + bytes - 1 }),
      );
    }
    const { rule } = model;
    const sizes = { rule, threads: 1, kvTokens: KV_TOKENS, maxSequences: 4 };
    const stages = new LocalStages(
      files.slice(0, -1).map((file) => ({ path: file, ...sizes })),
      silenceMs,
    );
    const crashes: string[] = [];
    const whole = await EngineSession.over((sink) =>
      startLlamaEngine({ modelPath: path, options: OPTIONS, sink }),
    );
    const started = await withPending((sink) =>
      startLlamaEngine(
        {
          modelPath: files.at(-1)!,
          options: OPTIONS,
          onRestart: ({ message }) => crashes.push(message),
          sink,
        },
        stages,
      ),
    );
    return new StagedSession(started, { whole, stages, crashes }, folder);
  }

  override async close(): Promise<void> {
    await super.close();
    await this.stages.close();
    await this.whole.close();
    rmSync(this.#folder, { recursive: true });
  }
}
