// holds: shard-parted

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CuttableProxy } from "../../../test/cuttable-proxy.ts";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

const ID = "parted";
/** MiB of each worker: more than two stages of the model. */
const MEMORY_MIB = "600";
const OPTIONS = { context_tokens: 4_096, kv_tokens: 8_192, max_sequences: 4, threads: 1 };
const DEADLINE_MS = 150_000;
const WORKERS = ["one", "two", "three"];
/** So many that an answer takes seconds. */
const LONG_TOKENS = 1_000;

describe("workers with stages that do not reach each other", () => {
  let cluster: ProcessCluster;
  const proxies = new Map<string, CuttableProxy>();
  beforeAll(async () => {
    const masterFlags = ["--deadline-ms", `${DEADLINE_MS}`];
    cluster = await ProcessCluster.start({ workers: 0, isBare: true, masterFlags });
    for (const name of WORKERS) {
      const port = await freePort();
      const proxy = await CuttableProxy.to(port);
      proxies.set(name, proxy);
      const places = ["--grpc-port", `${port}`, "--advertise", proxy.address];
      await cluster.startWorker([...places, "--memory-mib", MEMORY_MIB, "--name", name], name);
    }
    // Only masters reach workers as yet.
    const asked = { id: "whole", source: "builtin://tiny", replicas: WORKERS.length };
    await register({ ...asked, placement: "whole" });
    await eventually(async () => (await model("whole")).replicas.every(isReady));
    for (const proxy of proxies.values()) proxy.keepPresent();
    const file = join(cluster.data, "six.gguf");
    await writeTinyModel(file, { blocks: 6 });
    const divided = { id: ID, source: `file://${file}`, options: OPTIONS, max_stages: 2 };
    await register({ ...divided, placement: "sharded" });
    await eventually(async () => (await model()).status === "ready");
  });
  afterAll(async () => {
    await cluster?.close();
    for (const proxy of proxies.values()) proxy.close();
  });

  const isReady = ({ phase }: { phase: string }) => phase === "ready";
  const register = async (body: object) => {
    const reply = await cluster.request("POST", "/api/v1/models", body);
    expect(await reply.text()).toContain('"object":"model"');
  };
  const model = async (id = ID) => {
    const reply = await cluster.request("GET", `/api/v1/models/${id}`);
    return (await reply.json()) as Model;
  };
  const nodeOf = (name: string) => readFileSync(join(cluster.data, name, "node-id"), "utf8").trim();
  const nameOf = (node: string) => WORKERS.find((name) => nodeOf(name) === node);
  /** The names of the workers of the replica's stages. */
  const ring = async () => {
    const { replicas } = await model();
    return replicas[0]?.stages?.map(({ node }) => nameOf(node)) ?? [];
  };
  /** The tokens of a long answer; `onBegin` is called when it has begun. */
  const longAnswer = async (onBegin: () => void) => {
    const stream = await cluster.openai.completions.create({
      model: ID,
      prompt: "a long answer",
      max_tokens: LONG_TOKENS,
      temperature: 0,
      logit_bias: NO_END,
      stream: true,
      stream_options: { include_usage: true },
    });
    let tokens = 0;
    let hasBegun = false;
    for await (const { usage } of stream) {
      if (!hasBegun) onBegin();
      hasBegun = true;
      tokens = usage?.completion_tokens ?? tokens;
    }
    return tokens;
  };

  it("another one takes the earlier stage, and the answer is complete", async () => {
    const [first = "", last] = await ring();
    expect(await longAnswer(() => proxies.get(first)?.cut())).toBe(LONG_TOKENS);
    const spare = WORKERS.find((name) => name !== first && name !== last);
    expect(await ring()).toEqual([spare, last]);
  });

  it("without another one calls end in time, with the names of both", async () => {
    const [first = ""] = await ring();
    const begunMs = performance.now();
    const answer = longAnswer(() => proxies.get(first)?.cut());
    const far = /^worker \w+ \(\S+\), which has the last blocks .* does not reach worker \w+ \(/;
    await expect(answer).rejects.toMatchObject({ message: expect.stringMatching(far) });
    expect(performance.now() - begunMs).toBeLessThan(DEADLINE_MS);
    await eventually(async () => far.test((await model()).replicas[0]?.message ?? ""));
    for (const proxy of proxies.values()) proxy.mend();
    await eventually(async () => (await model()).status === "ready");
    expect(await longAnswer(() => {})).toBe(LONG_TOKENS);
  });
});
