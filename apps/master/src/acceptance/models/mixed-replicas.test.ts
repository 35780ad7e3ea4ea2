// holds: shard-mixed

import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { SHAPE } from "@heddle/engines/gguf/tiny-model";
import { writeLargeModel } from "@heddle/engines/testing/large-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

const ID = "mixed";
/** 392 MiB. */
const SIZES = {
  ...SHAPE,
  blocks: 12,
  embedding: 768,
  heads: 8,
  feedForward: 3_072,
  contextTokens: 512,
};
/** The process of a last stage takes 188 of it, and four blocks 134. */
const SMALL_MIB = "330";
const LARGE_MIB = "700";
const OPTIONS = { context_tokens: 512, kv_tokens: 1024, max_sequences: 4, threads: 1 };

describe("a model with whole and divided replicas", () => {
  let cluster: ProcessCluster;
  let source = "";
  let bytes = 0;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 0, isBare: true });
    for (let i = 0; i < 3; i++) await cluster.startWorker(["--memory-mib", SMALL_MIB]);
    await cluster.startWorker(["--memory-mib", LARGE_MIB]);
    const file = join(cluster.data, "large.gguf");
    await writeLargeModel(file, SIZES);
    source = `file://${file}`;
    bytes = statSync(file).size;
  });
  afterAll(() => cluster?.close());

  const nodeOf = (worker: number) =>
    readFileSync(join(cluster.data, `worker-${worker}`, "node-id"), "utf8").trim();
  const model = async () => {
    const reply = await cluster.request("GET", `/api/v1/models/${ID}`);
    return (await reply.json()) as Model;
  };
  /** For the node of each ready replica, its number of stages, 0 for a whole one. */
  const shape = async () =>
    Object.fromEntries(
      (await model()).replicas
        .filter(({ phase }) => phase === "ready")
        .map(({ node, stages }) => [node, stages?.length ?? 0]),
    );
  const post = async (method: string, path: string, body: object) => {
    const reply = await cluster.request(method, `/api/v1/models${path}`, body);
    expect(await reply.text()).toContain('"object":"model"');
  };
  const scale = (count: number) =>
    post("PUT", `/${ID}/scaling`, { scaling: { min: count, max: count } });
  const answer = async (prompt: string) => {
    const asked = { model: ID, prompt, max_tokens: 8, temperature: 0, logit_bias: NO_END };
    return (await cluster.openai.completions.create(asked)).choices[0]?.text;
  };
  /** So many at once that both replicas get some. */
  const answers = (prompt: string) => Promise.all(Array.from({ length: 8 }, () => answer(prompt)));

  it("gives the whole one to the worker that can hold it", async () => {
    expect(bytes).toBeGreaterThan(Number(SMALL_MIB) * 2 ** 20);
    const weights = { file: "large.gguf", sources: [source], size_bytes: bytes };
    await post("POST", "", { id: ID, weights, replicas: 2, options: OPTIONS });
    await eventually(async () => Object.keys(await shape()).length === 2);
    const found = await shape();
    expect(found[nodeOf(4)]).toBe(0);
    expect(Object.values(found).toSorted()).toEqual([0, 3]);
  });

  it("answers by both, with the same text", async () => {
    const texts = await answers("both of them");
    expect(texts[0]).not.toBe("");
    expect(new Set(texts).size).toBe(1);
    await eventually(async () => {
      const now = (await model()).replicas.flatMap((replica) => replica.stages ?? []);
      return now.every(({ steps }) => steps > 0);
    });
  });

  it("keeps the whole one where one replica is wanted", async () => {
    await scale(1);
    await eventually(async () => Object.keys(await shape()).length === 1);
    expect(await shape()).toEqual({ [nodeOf(4)]: 0 });
    await scale(2);
    await eventually(async () => Object.keys(await shape()).length === 2);
  });

  it("answers by the divided one when the other's worker is killed", async () => {
    const before = await answer("the last one");
    await cluster.stop(cluster.workers[3]!, "SIGKILL");
    await eventually(async () => Object.values(await shape()).join() === "3");
    expect(await answers("the last one")).toContain(before);
  });
});
