// holds: storage-quota

import type { Project } from "@heddle/contracts/api/projects";
import { BOUNDS_STORAGE } from "@heddle/control/cluster-version";
import { afterAll, beforeAll, expect, test } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let key: string;
beforeAll(async () => {
  server = await startTestMaster();
  const { text } = await server.addKey({ scopes: ["*"], project: "vision" });
  key = text;
});
afterAll(() => server.master.close());

async function upload(bytes: number, by = key): Promise<Response> {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File(["x".repeat(bytes)], "lines.jsonl"));
  const headers = { authorization: `Bearer ${by}` };
  return fetch(`${server.url}/api/v1/files`, { method: "POST", headers, body: form });
}

async function project(name: string): Promise<Project> {
  return (await (await send(server, "GET", `/api/v1/projects/${name}`)).json()) as Project;
}

const quota = (name: string, storage_bytes: number) =>
  send(server, "PUT", `/api/v1/projects/${name}`, { weight: 1, quota: { storage_bytes } });

test("storage quota: files and conversations are refused with 429 beyond it", async () => {
  expect((await quota("vision", 5_000)).status).toBe(200);
  const first = await upload(3_000);
  expect(first.status).toBe(200);
  const { id } = (await first.json()) as { id: string };
  const { quota: limit, usage } = await project("vision");
  expect(limit.storage_bytes).toBe(5_000);
  expect(usage.storage.documents).toBeGreaterThan(3_000);
  expect(usage.storage_bytes).toBe(usage.storage.documents);
  const refused = await upload(3_000);
  expect([refused.status, await refused.json()]).toMatchObject([
    429,
    {
      error: {
        code: "insufficient_quota",
        message: expect.stringMatching(/project vision keeps 3\d\d\d bytes.*quota is 5000; delete/),
      },
    },
  ]);
  const metadata = Object.fromEntries(
    Array.from({ length: 5 }, (_, at) => [`k${at}`, "v".repeat(500)]),
  );
  const conversation = await send(server, "POST", "/api/v1/conversations", { metadata }, { key });
  expect(await conversation.json()).toMatchObject({ error: { code: "insufficient_quota" } });
  expect((await project("vision")).usage).toEqual(usage);
  await send(server, "DELETE", `/api/v1/files/${id}`, undefined, { key });
  expect((await project("vision")).usage.storage_bytes).toBe(0);
  expect((await upload(3_000)).status).toBe(200);
});

test("storage quota: other projects of the cluster are not affected", async () => {
  expect((await quota("vision", 0)).status).toBe(200);
  expect((await upload(10)).status).toBe(429);
  expect((await upload(10, server.adminKey)).status).toBe(200);
  const job = { name: "n", project: "vision", command: "true" };
  const reply = await send(server, "POST", "/api/v1/jobs", job, { key });
  expect([reply.status, await reply.json()]).toMatchObject([
    429,
    { code: "insufficient_quota", errors: [{ pointer: "#/project" }] },
  ]);
  const elsewhere = { ...job, project: "default" };
  expect((await send(server, "POST", "/api/v1/jobs", elsewhere)).status).toBe(202);
});

test("storage quota: metrics have use and limit, and each caller sees its projects", async () => {
  const { usage } = await project("vision");
  const text = await (await send(server, "GET", "/metrics")).text();
  const line = `heddle_cluster_project_storage_bytes{project="vision"} ${String(usage.storage_bytes)}`;
  expect(text).toContain(line);
  expect(text).toContain('heddle_cluster_project_storage_limit_bytes{project="vision"} 0');
  const { text: other } = await server.addKey({ scopes: ["cluster:read"], project: "p" });
  const seen = async (by: string) => {
    const reply = await send(server, "GET", "/api/v1/cluster/metrics", undefined, { key: by });
    const { jobs } = (await reply.json()) as { jobs: { storage: Record<string, unknown> } };
    return Object.keys(jobs.storage).sort();
  };
  expect(await seen(server.adminKey)).toEqual(["default", "vision"]);
  expect(await seen(other)).toEqual([]);
});

test("storage quota: refused until all masters support it", async () => {
  const { cluster } = server.control.state;
  const version = cluster.get("version") as number;
  cluster.set("version", BOUNDS_STORAGE - 1);
  const refused = await quota("vision", 1);
  cluster.set("version", version);
  expect([refused.status, await refused.text()]).toEqual([
    503,
    expect.stringContaining("know no storage quotas yet"),
  ]);
});
