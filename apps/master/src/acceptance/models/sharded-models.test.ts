// holds: shard-workers

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

const ID = "sharded";
const WHOLE = "whole";
const PROMPT = "hello there, this is a prompt";
/** Of each worker: a stage's process, and two of the six blocks. */
const MEMORY_MIB = "97";
/** So that the whole model's cache is one pool too. */
const OPTIONS = { context_tokens: 512, kv_tokens: 1024, max_sequences: 4, threads: 1 };

describe("a model that workers divide", { timeout: 180_000 }, () => {
  let cluster: ProcessCluster;
  let source = "";
  beforeAll(async () => {
    const workerFlags = ["--memory-mib", MEMORY_MIB];
    cluster = await ProcessCluster.start({ workers: 4, workerFlags, isBare: true });
    const file = join(cluster.data, "six.gguf");
    await writeTinyModel(file, { blocks: 6 });
    source = `file://${file}`;
  }, 180_000);
  afterAll(() => cluster?.close());

  const deploy = async (id: string, placement: string) => {
    const body = { id, source, options: OPTIONS, placement };
    const reply = await cluster.request("POST", "/api/v1/models", body);
    expect(await reply.text()).toContain('"object":"model"');
    await ready(id);
  };
  const ready = (id: string) =>
    eventually(async () => (await model(id)).status === "ready", undefined, 60_000);
  const model = async (id: string) => {
    const reply = await cluster.request("GET", `/api/v1/models/${id}`);
    return (await reply.json()) as Model;
  };
  const answer = async (id: string, seed: number) => {
    const { choices } = await cluster.openai.completions.create({
      model: id,
      prompt: `${seed}: ${PROMPT}`,
      max_tokens: 40,
      temperature: 0,
      logprobs: 2,
    });
    return choices[0];
  };

  const stagesOf = async (id: string) => (await model(id)).replicas[0]?.stages ?? [];
  const stageNodes = async () => {
    const { replicas } = await model(ID);
    return replicas[0]?.stages?.map(({ node }) => node) ?? [];
  };
  /** The place of a node among the cluster's processes. */
  const indexOf = (node: string | undefined) => nodeIds().indexOf(node ?? "");
  const spareIndex = (used: readonly string[]) => nodeIds().findIndex((id) => !used.includes(id));
  const nodeIds = () =>
    [1, 2, 3, 4].map((i) =>
      readFileSync(join(cluster.data, `worker-${i}`, "node-id"), "utf8").trim(),
    );

  it("is served by three of them, as by one", async () => {
    await deploy(WHOLE, "whole");
    const expected = await answer(WHOLE, 1);
    await cluster.request("DELETE", `/api/v1/models/${WHOLE}`);
    await deploy(ID, "sharded");
    const { replicas } = await model(ID);
    expect(replicas).toMatchObject([
      {
        phase: "ready",
        context_tokens: 512,
        stages: [
          { first_block: 0, last_block: 1, phase: "ready" },
          { first_block: 2, last_block: 3, phase: "ready" },
          { node: replicas[0]?.node, first_block: 4, last_block: 5, phase: "ready" },
        ],
      },
    ]);
    expect(await answer(ID, 1)).toEqual(expected);
    await eventually(async () => (await stagesOf(ID)).every(({ steps }) => steps > 0));
    const stages = await stagesOf(ID);
    for (const { step_ms: stepMs, idle_share: idle } of stages) {
      expect(stepMs).toBeGreaterThan(0);
      expect(idle).toBeGreaterThan(0);
      expect(idle).toBeLessThan(1);
    }
    expect(stages.map(({ hop_ms: hopMs }) => (hopMs ?? 0) > 0)).toEqual([false, false, true]);
  });

  it("answers on when a worker is killed in the middle of it", async () => {
    const lost = await stageNodes();
    const stream = await cluster.openai.completions.create({
      model: ID,
      prompt: PROMPT,
      max_tokens: 400,
      temperature: 0,
      logit_bias: NO_END,
      stream: true,
      stream_options: { include_usage: true },
    });
    let isKilled = false;
    let completed = 0;
    for await (const { choices, usage } of stream) {
      completed = usage?.completion_tokens ?? 0;
      if (isKilled || !choices[0]?.text) continue;
      isKilled = true;
      await cluster.stop(cluster.workers[indexOf(lost[1])]!, "SIGKILL");
    }
    expect(completed).toBe(400);
    const now = await stageNodes();
    expect([now[0], now[2]]).toEqual([lost[0], lost[2]]);
    expect(lost).not.toContain(now[1]);
  });

  it("moves the stage of a worker that is drained", async () => {
    const [first = "", killed, last] = await stageNodes();
    await cluster.startWorker([], `worker-${spareIndex(await stageNodes()) + 1}`);
    await cluster.request("POST", `/api/v1/workers/${first}/drain`, {});
    await eventually(async () => !(await stageNodes()).includes(first), undefined, 30_000);
    expect((await stageNodes()).slice(1)).toEqual([killed, last]);
    await ready(ID);
    expect((await answer(ID, 2))?.text).not.toBe("");
  });

  it("says what is missing where it does not fit", async () => {
    const body = { id: "large", source, options: OPTIONS, placement: "sharded", max_stages: 2 };
    await cluster.request("POST", "/api/v1/models", body);
    await eventually(async () => (await model("large")).waiting_for.length > 0, undefined, 30_000);
    const { status, waiting_for } = await model("large");
    expect(status).toBe("unplaced");
    expect(waiting_for).toEqual([
      expect.stringMatching(/does not fit into 2 stages: it needs 3 MiB/),
    ]);
  });
});
