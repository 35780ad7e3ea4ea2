// holds: shard-workers, shard-drain

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { childrenOf, NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

const ID = "divided";
/** MiB of each worker: more than two stages of the model. */
const MEMORY_MIB = "600";
const OPTIONS = { context_tokens: 4_096, kv_tokens: 8_192, max_sequences: 4, threads: 1 };
const DEADLINE_MS = 90_000;
const WORKERS = ["one", "two", "three"];
/** So many that an answer takes seconds. */
const LONG_TOKENS = 1_000;
const PAUSED_TOKENS = 200;

describe("workers of a divided model", () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    const masterFlags = ["--deadline-ms", `${DEADLINE_MS}`];
    cluster = await ProcessCluster.start({ workers: 0, isBare: true, masterFlags });
    for (const name of WORKERS) {
      await cluster.startWorker(["--memory-mib", MEMORY_MIB, "--name", name], name);
    }
    const file = join(cluster.data, "six.gguf");
    await writeTinyModel(file, { blocks: 6 });
    const body = { id: ID, source: `file://${file}`, options: OPTIONS, placement: "sharded" };
    const reply = await cluster.request("POST", "/api/v1/models", { ...body, max_stages: 2 });
    expect(await reply.text()).toContain('"object":"model"');
    await eventually(async () => (await model()).status === "ready");
  });
  afterAll(() => cluster?.close());

  const model = async () => {
    const reply = await cluster.request("GET", `/api/v1/models/${ID}`);
    return (await reply.json()) as Model;
  };
  const nodeOf = (name: string) => readFileSync(join(cluster.data, name, "node-id"), "utf8").trim();
  const nameOf = (node: string | undefined) => WORKERS.find((name) => nodeOf(name) === node);
  /** The names of the workers of each replica's stages. */
  const rings = async () =>
    (await model()).replicas.map(({ stages }) => stages?.map(({ node }) => nameOf(node)) ?? []);
  const asked = (prompt: string, tokens: number) => {
    return { model: ID, prompt, max_tokens: tokens, temperature: 0, logit_bias: NO_END };
  };
  const openLong = (prompt: string, tokens = LONG_TOKENS) =>
    cluster.openai.completions.create({
      ...asked(prompt, tokens),
      stream: true,
      stream_options: { include_usage: true },
    });
  const answerOf = async (prompt: string) => {
    const { usage } = await cluster.openai.completions.create(asked(prompt, 4));
    return usage?.completion_tokens;
  };

  it("the last stage moves while answers end where they began, without a gap", async () => {
    const [[first, last] = []] = await rings();
    let isRunning = true;
    const stream = await openLong("a long answer");
    const completed = (async () => {
      let tokens = 0;
      for await (const { usage } of stream) tokens = usage?.completion_tokens ?? tokens;
      isRunning = false;
      return tokens;
    })();
    const drained = await cluster.request("POST", `/api/v1/workers/${nodeOf(last!)}/drain`, {});
    expect(drained.status).toBeLessThan(300);
    const spare = WORKERS.find((name) => name !== first && name !== last)!;
    const moved = async () => {
      expect(await answerOf("a short one")).toBe(4);
      const { replicas } = await model();
      return replicas.some(({ node, phase }) => nameOf(node) === spare && phase === "ready");
    };
    await eventually(moved);
    expect(isRunning).toBe(true);
    expect(await completed).toBe(LONG_TOKENS);
    await eventually(
      async () => JSON.stringify(await rings()) === JSON.stringify([[first, spare]]),
    );
    expect(await answerOf("after it")).toBe(4);
  });

  it("a stage's process that freezes is replaced before a call's deadline", async () => {
    const [[first = ""] = []] = await rings();
    const { pid } = cluster.workers[WORKERS.indexOf(first)]!;
    const isStage = (child: number) =>
      readFileSync(`/proc/${child}/cmdline`, "utf8").includes("stage-main");
    const frozen = childrenOf(pid).find(isStage)!;
    const stream = await openLong("one that pauses", PAUSED_TOKENS);
    let tokens: number | undefined;
    for await (const { usage } of stream) {
      if (tokens === undefined) process.kill(frozen, "SIGSTOP");
      tokens = usage?.completion_tokens ?? 0;
    }
    expect(tokens).toBe(PAUSED_TOKENS);
    expect(childrenOf(pid)).not.toContain(frozen);
  });

  it("one that freezes is named by the model's state and by calls, in time", async () => {
    const [[first = ""] = []] = await rings();
    const worker = cluster.workers[WORKERS.indexOf(first)]!;
    const named = expect.stringMatching(
      new RegExp(`worker ${first} .*blocks 0 to .* does not report: resume or restart it`),
    );
    const stream = await openLong("one that will not end");
    const begunMs = performance.now();
    worker.kill("SIGSTOP");
    try {
      const read = async () => {
        for await (const _ of stream);
      };
      await expect(read()).rejects.toMatchObject({ message: named });
      expect(performance.now() - begunMs).toBeLessThan(DEADLINE_MS);
      const { status, replicas } = await model();
      expect([status, replicas[0]?.message]).toEqual(["loading", named]);
      // When it would have restarted, others do not wait for it.
      await eventually(async () => {
        const reply = await cluster.request("POST", "/api/v1/completions", asked("another", 4));
        const { error } = (await reply.json()) as { error: { code: string; message: string } };
        return error.code === "unavailable" && error.message.includes(`worker ${first} `);
      });
    } finally {
      worker.kill("SIGCONT");
    }
    await eventually(async () => (await model()).status === "ready");
    expect(await answerOf("again")).toBe(4);
  });
});
