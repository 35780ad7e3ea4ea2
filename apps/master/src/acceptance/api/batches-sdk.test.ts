// holds: api-batches-restart

import { eventually } from "@heddle/base/testing/eventually";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node client against a master, which is killed, and a worker.

const LINES = 300;

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
});
afterAll(() => cluster.close());

/** A client of the master as it runs now. */
const openai = () => new OpenAI({ baseURL: `${cluster.url}/api/v1`, apiKey: cluster.adminKey });

async function createBatch(): Promise<string> {
  const lines = Array.from({ length: LINES }, (_, at) => ({
    custom_id: `line-${at}`,
    method: "POST",
    url: "/v1/chat/completions",
    body: {
      model: TINY,
      messages: [{ role: "user", content: `line ${at}` }],
      max_tokens: 48,
      logit_bias: NO_END,
    },
  }));
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const file = await openai().files.create({
    file: await toFile(Buffer.from(text), "lines.jsonl"),
    purpose: "batch",
  });
  const batch = await openai().batches.create({
    input_file_id: file.id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  return batch.id;
}

it("batches: a killed master continues where it was, with one result for each line", async () => {
  const id = await createBatch();
  const seen: number[] = [];
  for (let kill = 0; kill < 2; kill++) {
    const before = seen.at(-1) ?? 0;
    await eventually(
      async () => {
        const { request_counts: counts } = await openai().batches.retrieve(id);
        seen.push(counts?.completed ?? 0);
        return (seen.at(-1) ?? 0) > before;
      },
      undefined,
      120_000,
    );
    expect(seen.at(-1)).toBeLessThan(LINES);
    await cluster.stop(cluster.master, "SIGKILL");
    await cluster.startMaster();
  }
  let batch = await openai().batches.retrieve(id);
  await eventually(
    async () => {
      batch = await openai().batches.retrieve(id);
      return batch.status === "completed";
    },
    undefined,
    180_000,
  );
  expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
  expect(batch.error_file_id).toBeNull();
  const text = await (await openai().files.content(batch.output_file_id ?? "")).text();
  const results = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(results.map(({ custom_id }) => custom_id).sort()).toEqual(
    Array.from({ length: LINES }, (_, at) => `line-${at}`).sort(),
  );
  for (const { response } of results) {
    expect(response).toMatchObject({ status_code: 200, body: { object: "chat.completion" } });
    expect(response.body.usage.completion_tokens).toBe(48);
  }
}, 600_000);

it("batches: a call beside one waits little longer than without it", async () => {
  const ask = async () => {
    const startedMs = performance.now();
    await openai().chat.completions.create({
      model: TINY,
      messages: [{ role: "user", content: "quick" }],
      max_tokens: 4,
    });
    return performance.now() - startedMs;
  };
  const id = await createBatch();
  await eventually(async () => (await openai().batches.retrieve(id)).status === "in_progress");
  const times: number[] = [];
  for (let call = 0; call < 8; call++) times.push(await ask());
  // Not behind the lines of the batch, of which each takes as long as several such calls.
  expect(Math.min(...times)).toBeLessThan(10_000);
  expect((await openai().batches.retrieve(id)).request_counts?.completed).toBeLessThan(LINES);
  await openai().batches.cancel(id);
});
