// holds: shard-workers

import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, expect, it } from "vitest";
import { LiveNodes } from "../../../test/live-nodes.ts";
import { MasterGroup, REAL_MASTER } from "../../../test/master-group.ts";

const OPTIONS = { context_tokens: 512, kv_tokens: 1024, max_sequences: 4, threads: 1 };

let group: MasterGroup;
let nodes: LiveNodes;
let source: string;
beforeAll(async () => {
  group = new MasterGroup(3, [], () => ({}), REAL_MASTER);
  await group.startAll();
  nodes = new LiveNodes(group, group.grpcAddresses);
  await nodes.startWorker("one", ["--memory-mib", "900"]);
  const file = join(group.folder, "two.gguf");
  await writeTinyModel(file, { blocks: 2 });
  source = `file://${file}`;
});
afterAll(async () => {
  await nodes?.close();
  await group?.close();
});

/** What each master shows of the model. */
const shown = (id: string) =>
  Promise.all(
    group.names.map(async (name) => {
      const reply = await group.request(name, "GET", `/api/v1/models/${id}`);
      return (await reply.json()) as Model;
    }),
  );

it("divisions: every master says why a model cannot be divided", async () => {
  const body = { id: "divided", source, options: OPTIONS, placement: "sharded" };
  await group.change("master-1", "POST", "/api/v1/models", body);
  await eventually(async () => {
    const waiting = (await shown("divided")).map(({ waiting_for: reasons }) => reasons.join());
    return waiting.every((text) => text.includes("needs two workers"));
  });
});

it("divisions: every master says why `auto` does not divide a model", async () => {
  const weights = { file: "two.gguf", sources: [source], size_bytes: 1_000 };
  const body = { id: "open", weights, options: OPTIONS };
  const reply = await group.change("master-1", "POST", "/api/v1/models", body);
  expect(reply.status).toBe(200);
  let reasons: (string | null)[] = [];
  await eventually(
    async () => {
      reasons = (await shown("open")).map(({ undivided }) => undivided);
      return reasons.every((text) => /^one worker can hold it: .* one has /.test(text ?? ""));
    },
    () => `all say it: ${reasons.join("; ")}`,
    20_000,
  );
});
