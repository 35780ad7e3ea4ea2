// holds: serving-tensor-split

import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { afterAll, beforeAll, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// Models of several GPUs on a worker with declared devices, whose engines run on the CPU.

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workerFlags: ["--simulate-gpus", "4xH100-80GB"] });
});
afterAll(() => cluster.close());

async function api(method: string, path: string, body?: unknown) {
  const reply = await send(cluster, method, path, body);
  return (await reply.json()) as Model;
}

it("GPU split: a replica of two GPUs is one place; others get what is left", async () => {
  const options = { threads: 1, split_mode: "row", tensor_split: [3, 1], main_gpu: 1 };
  const pair = { source: "builtin://tiny?seed=21", resources: { gpu_count: 2 }, options };
  await api("POST", "/api/v1/models", { id: "pair", ...pair });
  const device = async (id: string) =>
    (await api("GET", `/api/v1/models/${id}`)).replicas.find(({ phase }) => phase === "ready")
      ?.device;
  await eventually(async () => (await device("pair")) !== undefined, "it is ready");
  expect(await device("pair")).toBe("gpus 0,1: H100 (simulated, on the CPU)");
  const large = { source: "builtin://tiny?seed=22", resources: { gpu_count: 3 } };
  await api("POST", "/api/v1/models", { id: "large", ...large });
  const waits = async () => (await api("GET", "/api/v1/models/large")).waiting_for;
  await eventually(async () => (await waits()).length > 0, "it waits for GPUs");
  const resources = await send(cluster, "GET", "/api/v1/cluster/resources");
  expect(await resources.text()).toContain('"gpus":[{"index":0,"share":1},{"index":1,"share":1}]');
  const answer = await send(cluster, "POST", "/api/v1/chat/completions", {
    model: "pair",
    messages: [{ role: "user", content: "Hello" }],
    max_tokens: 4,
  });
  expect(answer.status).toBe(200);
  await api("DELETE", "/api/v1/models/pair");
  await eventually(async () => (await device("large")) !== undefined, "it is ready");
});

it("GPU split: shares and places of another number of GPUs are refused by name", async () => {
  const base = { id: "bad", source: "builtin://tiny?seed=23", resources: { gpu_count: 2 } };
  for (const [options, param] of [
    [{ tensor_split: [1] }, "options.tensor_split"],
    [{ tensor_split: [0, 0] }, "options.tensor_split"],
    [{ main_gpu: 2 }, "options.main_gpu"],
    [{ split_mode: "columns" }, "options.split_mode"],
  ] as const) {
    const reply = await send(cluster, "POST", "/api/v1/models", { ...base, options });
    expect([reply.status, await reply.json()]).toMatchObject([400, { error: { param } }]);
  }
});
