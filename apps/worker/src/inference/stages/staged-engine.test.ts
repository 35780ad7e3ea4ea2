// holds: shard-join

import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { cuttableModel } from "@heddle/engines/shards/cut-rules";
import { startStage } from "@heddle/engines/shards/ring/stage-process";
import { cutShard } from "@heddle/engines/shards/shard-cut";
import { writeShard } from "@heddle/engines/shards/testing/write-shard";
import { expect, onTestFinished, test } from "vitest";
import { startStagedEngine } from "./staged-engine.ts";

const SIZES = { contextTokens: 256, kvTokens: 512, maxSequences: 2 };

test("staged engine: it ends with the reason where a stage returns with another build", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-staged-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "whole.gguf");
  await writeTinyModel(path, { blocks: 2 });
  const model = cuttableModel(await readGguf(path));
  const [first = "", last = ""] = await Promise.all(
    [0, 1].map(async (from) => {
      const file = join(folder, `${from}.gguf`);
      await writeShard(file, cutShard(model, { from, to: from + 1 }), (start, bytes) =>
        createReadStream(path, { start, end: start + bytes - 1 }),
      );
      return file;
    }),
  );
  const earlier = { from: 0, to: 1, threads: 1, rule: model.rule, ...SIZES };
  const process = await startStage({ ...earlier, path: first });
  const peer = { node: "n", address: "", deployment: "m#n/0", from: 0, to: 1, memoryBytes: 0 };
  let joins = 0;
  const joinPeers = async () => {
    if (joins++ > 0) throw new AppError("precondition_failed", "it has another library");
    return [{ peer, frames: process.frames }];
  };
  const stage = { from: 1, to: 2, driver: "d", peers: [peer], memoryBytes: 0, ...SIZES, index: "" };
  const weights = { key: "m", file: "m.gguf", sources: [] };
  const spec: LlamaDeployment = { key: "m", engine: "llama", weights, options: { threads: 1 } };
  const exited = Promise.withResolvers<AppError>();
  const { signal } = new AbortController();
  const engine = await startStagedEngine({ ...spec, stage }, last, {
    sink: () => {},
    onExit: exited.resolve,
    onDown: () => {},
    onRecovered: () => {},
    signal,
    joinPeers,
  });
  onTestFinished(() => engine.close());
  await process.close();
  expect(await exited.promise).toMatchObject({
    code: "precondition_failed",
    message: "it has another library",
  });
});
