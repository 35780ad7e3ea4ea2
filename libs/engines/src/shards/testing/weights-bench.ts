import { createHash } from "node:crypto";
import { once } from "node:events";
import { createReadStream, readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { readGguf } from "../../gguf/gguf-reader.ts";
import { AbsentRange } from "../../weights/ranges/range-source.ts";
import { encodeIndex, IndexPass, indexDigest } from "../../weights/ranges/tensor-index.ts";
import { reasonOf } from "../../weights/source-fault.ts";
import { cuttableModel } from "../cut-rules.ts";
import { type BlockRange, cutShard } from "../shard-cut.ts";
import { HeldWeights } from "../weights/held-weights.ts";
import {
  indexedModel,
  type StageWeightsOptions,
  stagesDirectory,
  stageWeights,
  type WeightsPeer,
} from "../weights/stage-weights.ts";
import { writeRandomModel } from "./random-architectures.ts";
import { writeShard } from "./write-shard.ts";

export const HUB = "hf://owner/repo/model.gguf@abc123";
export const OTHER_HUB = "hf://owner/other/model.gguf@abc123";
/** Blocks of a stage that is neither the first nor the last. */
export const MIDDLE = { from: 4, to: 9 };
export const QUICK = {
  retryBaseMs: 1,
  retryMaxMs: 5,
  connectTimeoutMs: 5_000,
  idleTimeoutMs: 5_000,
};

/** What the server sends: a file, or the beginning of it. */
export interface Serving {
  readonly body?: Buffer;
  /** The connection breaks after this many bytes, when this holds. */
  readonly most?: number;
  readonly until?: () => boolean;
}

/** A random model's file, a server that gives ranges of it, and a worker's cache. */
export class WeightsBench {
  readonly folder: string;
  readonly path: string;
  readonly content: Buffer;
  readonly model: ReturnType<typeof cuttableModel>;
  readonly sha256: string;
  readonly index: string;
  /** Bytes that the server has sent, and the ranges that were requested. */
  sent = 0;
  asked: string[] = [];
  handler: (request: IncomingMessage, response: ServerResponse) => void = () => {};
  #cache = "";
  readonly #server = createServer((request, response) => this.handler(request, response));

  private constructor(folder: string, path: string, model: WeightsBench["model"]) {
    this.folder = folder;
    this.path = path;
    this.model = model;
    this.content = readFileSync(path);
    this.sha256 = createHash("sha256").update(this.content).digest("hex");
    const pass = new IndexPass(this.content.length);
    pass.push(this.content);
    this.index = indexDigest(encodeIndex(pass.end().index));
  }

  static async start(): Promise<WeightsBench> {
    const folder = await mkdtemp(join(tmpdir(), "heddle-ranges-"));
    const path = join(folder, "model.gguf");
    await writeRandomModel(path, "llama");
    const bench = new WeightsBench(folder, path, cuttableModel(await readGguf(path)));
    await once(bench.#server.listen(0, "127.0.0.1"), "listening");
    return bench;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await rm(this.folder, { recursive: true });
  }

  /** An empty cache, and a server that answers; before each test. */
  async reset(): Promise<void> {
    this.#server.closeAllConnections();
    this.#cache = await mkdtemp(join(this.folder, "cache-"));
    this.#forget();
    this.handler = (request, response) => this.serve(request, response);
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  serve(
    { headers }: IncomingMessage,
    response: ServerResponse,
    { body = this.content, most = Number.POSITIVE_INFINITY, until = () => true }: Serving = {},
  ): void {
    const [, start = "0", end = `${body.length - 1}`] =
      /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? "") ?? [];
    this.asked.push(headers.range ?? "all");
    const part = body.subarray(Number(start), Number(end) + 1);
    response.writeHead(206, {
      "content-length": part.length,
      "content-range": `bytes ${start}-${end}/${body.length}`,
    });
    const given = part.subarray(0, most);
    this.sent += given.length;
    const breakOff = (): void => {
      if (until()) response.destroy();
      else setTimeout(breakOff, 50);
    };
    response.write(given, () => {
      if (given.length < part.length) setTimeout(breakOff, 50);
      else response.end();
    });
  }

  specOf(sources: readonly string[], more: Partial<WeightsSpec> = {}): WeightsSpec {
    const { sha256, content } = this;
    return { key: "m", file: "m.gguf", sources, sha256, sizeBytes: content.length, ...more };
  }

  optionsOf(more: Partial<StageWeightsOptions> = {}): StageWeightsOptions {
    return {
      cacheDirectory: this.#cache,
      signal: AbortSignal.timeout(50_000),
      env: { HF_ENDPOINT: this.endpoint },
      limits: QUICK,
      ...more,
    };
  }

  stage(
    range: BlockRange,
    sources: readonly string[] = [HUB],
    more: Partial<StageWeightsOptions> = {},
  ): Promise<string> {
    const { index } = this;
    return stageWeights(this.specOf(sources), { ...range, index }, this.optionsOf(more));
  }

  /** Where stages are kept in the cache. */
  get stages(): string {
    return stagesDirectory(this.#cache);
  }

  /** The names of the cached shards. */
  async shards(): Promise<string[]> {
    const names = await readdir(join(this.stages, this.index));
    return names.filter((name) => /^\d.*gguf$/.test(name));
  }

  /** The shard as it is cut from a file that is here. */
  async expected(range: BlockRange): Promise<Buffer> {
    const path = join(this.folder, `${range.from}-${range.to}.gguf`);
    const read = (start: number, bytes: number) =>
      createReadStream(this.path, { start, end: start + bytes - 1 });
    await writeShard(path, cutShard(this.model, range), read);
    return readFileSync(path);
  }

  /** The file with one bit of a tensor of block 6 changed. */
  damaged(): Buffer {
    const { tensors } = this.model.file;
    const { offset } = tensors.find(({ name }) => name === "blk.6.ffn_up.weight")!;
    const body = Buffer.from(this.content);
    body[offset + 11]! ^= 1;
    return body;
  }

  /** A peer that has the index and the header, or the shard with the blocks too. */
  async peerWith(range?: BlockRange): Promise<WeightsPeer> {
    const cacheDirectory = await mkdtemp(join(this.folder, "peer-"));
    await indexedModel(this.specOf([HUB]), this.optionsOf({ cacheDirectory }));
    if (range) await this.stage(range, [HUB], { cacheDirectory });
    this.#forget();
    return peerOf(cacheDirectory);
  }

  #forget(): void {
    this.sent = 0;
    this.asked = [];
  }
}

/** What another worker's cache has, as that worker would give it. */
export function peerOf(directory: string): WeightsPeer {
  const held = new HeldWeights(stagesDirectory(directory));
  return {
    name: "the peer",
    index: async (digest) =>
      held.index(digest).catch((error: unknown) => {
        throw new AbsentRange(reasonOf(error));
      }),
    async *read(digest, { offset, bytes }) {
      try {
        yield* held.read(digest, offset, bytes);
      } catch (error) {
        throw new AbsentRange(reasonOf(error));
      }
    },
  };
}
