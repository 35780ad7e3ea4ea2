// holds: shard-workers

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
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
const TOKENS = 300;

describe("workers of a divided model, one of which has a full disk", () => {
  const disk = mkdtempSync(join(tmpdir(), "heddle-full-"));
  const isMounted =
    spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]).status === 0;
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 0, isBare: true });
    // Its name orders it before the others in a plan.
    await start("a", ...(isMounted ? ["--models-cache", disk] : []));
    await start("b");
    const file = join(cluster.data, "six.gguf");
    await writeTinyModel(file, { blocks: 6 });
    const body = { id: ID, source: `file://${file}`, options: OPTIONS, placement: "sharded" };
    const reply = await cluster.request("POST", "/api/v1/models", { ...body, max_stages: 2 });
    expect(await reply.text()).toContain('"object":"model"');
  });
  afterAll(async () => {
    await cluster?.close();
    spawnSync("umount", ["--lazy", disk]);
    rmSync(disk, { recursive: true });
  });

  const start = (name: string, ...flags: string[]) =>
    cluster.startWorker(["--memory-mib", MEMORY_MIB, "--name", name, ...flags], name);
  const model = async () => {
    const reply = await cluster.request("GET", `/api/v1/models/${ID}`);
    return (await reply.json()) as Model;
  };
  const nodeOf = (name: string) => readFileSync(join(cluster.data, name, "node-id"), "utf8").trim();

  it("say so, and another one takes its stage", async (context) => {
    if (!isMounted) {
      console.log("a full disk is not tested: mounting a tmpfs takes root");
      context.skip();
    }
    const reason = /blocks 0 to 2 .* failed .* bytes are needed and the disk .* has \d+ free/;
    await eventually(async () => reason.test((await model()).replicas[0]?.message ?? ""));
    await start("c");
    await eventually(async () => (await model()).status === "ready");
    const stages = (await model()).replicas[0]?.stages ?? [];
    expect(stages.map(({ node }) => node)).toEqual([nodeOf("c"), nodeOf("b")]);
  });

  it("answer on when the last stage's process is killed", async () => {
    await eventually(async () => (await model()).status === "ready");
    const engine = cluster.workers
      .flatMap(({ pid }) => childrenOf(pid))
      .find((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("engine-process"));
    const stream = await cluster.openai.completions.create({
      model: ID,
      prompt: "a long answer",
      max_tokens: TOKENS,
      temperature: 0,
      logit_bias: NO_END,
      stream: true,
      stream_options: { include_usage: true },
    });
    let tokens: number | undefined;
    for await (const { usage } of stream) {
      if (tokens === undefined) process.kill(engine!, "SIGKILL");
      tokens = usage?.completion_tokens ?? 0;
    }
    expect(tokens).toBe(TOKENS);
  });
});
