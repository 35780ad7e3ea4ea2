// holds: api-batches-restart, api-files

import { eventually } from "@heddle/base/testing/eventually";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";

// Three masters as processes, whose leader is killed under a batch; a script answers the calls.

const LINES = 200;
const MODEL = "FamilyB-1-8B";

let group: MasterGroup;
beforeAll(async () => {
  group = new MasterGroup(3, [], () => ({ env: { SCRIPT_TOKEN_DELAY_MS: "4" } }));
  await group.startAll();
  await group.leader();
});
afterAll(() => group.close());

const clientOf = (name: string) =>
  new OpenAI({ baseURL: `${group.url(name)}/api/v1`, apiKey: group.adminKey, maxRetries: 6 });

it("batches: another master continues when the leader is killed, each line once", async () => {
  const leader = await group.leader();
  const [other = ""] = group.names.filter((name) => name !== leader);
  const openai = clientOf(other);
  const lines = Array.from({ length: LINES }, (_, at) => ({
    custom_id: `line-${at}`,
    method: "POST",
    url: "/v1/chat/completions",
    body: { model: MODEL, messages: [{ role: "user", content: `line ${at}` }], max_tokens: 10 },
  }));
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const { id: file } = await openai.files.create({
    file: await toFile(Buffer.from(text), "lines.jsonl"),
    purpose: "batch",
  });
  const { id } = await openai.batches.create({
    input_file_id: file,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  const done = async () => (await openai.batches.retrieve(id)).request_counts?.completed ?? 0;
  await eventually(async () => (await done()) > 0);
  expect(await done()).toBeLessThan(LINES);
  await group.end(leader, "SIGKILL");
  let batch = await openai.batches.retrieve(id);
  await eventually(
    async () => {
      batch = await openai.batches.retrieve(id);
      return batch.status === "completed";
    },
    undefined,
    120_000,
  );
  expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
  const output = await (await openai.files.content(batch.output_file_id ?? "")).text();
  const results = output
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { custom_id: string });
  expect(results.map(({ custom_id }) => custom_id).sort()).toEqual(
    lines.map(({ custom_id }) => custom_id).sort(),
  );
  // What the killed master stored is on the others, and it has what they stored meanwhile.
  await group.start(leader);
  const restarted = clientOf(leader);
  expect(await (await restarted.files.content(file)).text()).toBe(text);
  expect(await (await restarted.files.content(batch.output_file_id ?? "")).text()).toBe(output);
});
