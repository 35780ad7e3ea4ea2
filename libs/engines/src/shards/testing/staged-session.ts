import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type { EngineOptions } from "@heddle/contracts/engine";
import { type LlamaEngine, startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { LocalStages } from "@heddle/engines/shards/ring/local-stages";
import { readGguf } from "../../gguf/gguf-reader.ts";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { EngineSession, withPending } from "../../testing/engine-session.ts";
import { type CuttableModel, cuttableModel } from "../cut-rules.ts";
import { FrameSplitter } from "../ring/frame-splitter.ts";
import { endsEpoch, readFrame } from "../ring/stage-frame.ts";
import { cutShard } from "../shard-cut.ts";
import { writeShard } from "./write-shard.ts";

const BLOCKS = 6;
/** The tokens of every cache: fewer than four slots, so that the whole model's is one pool too. */
export const KV_TOKENS = 1_024;
export const OPTIONS: EngineOptions = {
  threads: 1,
  contextTokens: 512,
  kvTokens: KV_TOKENS,
  maxSequences: 4,
  // Whether to draft depends on measured times, and a draft's call rounds differently.
  decoding: { draftTokens: 0 },
};

/** Frames that have left the last stage and not come back. */
interface Traffic {
  underWay: number;
  most: number;
  /** Frames that have left it. */
  sent: number;
  /** Epochs that have ended by a loss. */
  lost: number;
}

/** The link, with its frames counted. */
function counted(link: Duplex, traffic: Traffic): Duplex {
  const splitter = new FrameSplitter();
  traffic.underWay = 0;
  link.on("data", (bytes: Uint8Array) => {
    const { length } = splitter.push(bytes);
    traffic.sent += length;
    traffic.underWay += length;
    traffic.most = Math.max(traffic.most, traffic.underWay);
  });
  const write = link.write.bind(link);
  link.write = (frame: Uint8Array) => {
    traffic.underWay--;
    if (endsEpoch(readFrame(new Uint8Array(frame).buffer))) traffic.lost++;
    return write(frame);
  };
  return link;
}

/**
 * For tests: a model of six blocks, whole and cut at the given blocks into processes. It is a tiny
 * one if no other is written.
 */
export class StagedSession extends EngineSession<LlamaEngine> {
  readonly model: CuttableModel;
  readonly whole: EngineSession<LlamaEngine>;
  readonly stages: LocalStages;
  /** The reason of each restart of the engine. */
  readonly crashes: readonly string[];
  readonly traffic: Traffic;
  readonly #folder: string;

  private constructor(
    [engine, pending]: ConstructorParameters<typeof EngineSession<LlamaEngine>>,
    parts: Pick<StagedSession, "model" | "whole" | "stages" | "crashes" | "traffic">,
    folder: string,
  ) {
    super(engine, pending);
    this.model = parts.model;
    this.whole = parts.whole;
    this.stages = parts.stages;
    this.crashes = parts.crashes;
    this.traffic = parts.traffic;
    this.#folder = folder;
  }

  static async open(
    cuts: readonly number[],
    silenceMs?: number,
    options: EngineOptions = OPTIONS,
    write = (path: string) => writeTinyModel(path, { blocks: BLOCKS }),
  ): Promise<StagedSession> {
    const folder = mkdtempSync(join(tmpdir(), "heddle-stages-"));
    const path = join(folder, "whole.gguf");
    await write(path);
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
    const { kvTokens = KV_TOKENS, maxSequences = 4 } = options;
    const sizes = { rule, threads: 1, kvTokens, maxSequences, device: options.device };
    const stages = new LocalStages(
      files
        .slice(0, -1)
        .map((path, i) => ({ path, ...sizes, from: bounds[i]!, to: bounds[i + 1]! })),
      { silenceMs },
    );
    const crashes: string[] = [];
    const traffic = { underWay: 0, most: 0, sent: 0, lost: 0 };
    const whole = await EngineSession.over((sink) =>
      startLlamaEngine({ modelPath: path, options, sink }),
    );
    const started = await withPending((sink) =>
      startLlamaEngine(
        {
          modelPath: files.at(-1)!,
          options,
          onRestart: ({ message }) => crashes.push(message),
          sink,
        },
        {
          count: stages.count,
          blocks: stages.blocks,
          join: (link) => stages.join(counted(link, traffic)),
        },
      ),
    );
    return new StagedSession(started, { model, whole, stages, crashes, traffic }, folder);
  }

  override async close(): Promise<void> {
    await super.close();
    await this.stages.close();
    await this.whole.close();
    rmSync(this.#folder, { recursive: true });
  }
}
