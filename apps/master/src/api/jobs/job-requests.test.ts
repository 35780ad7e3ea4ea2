import { held } from "@heddle/base/testing/held";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { beforeEach, describe, expect, it } from "vitest";
import { JobApi } from "../../../test/job-api.ts";

let api: JobApi;

beforeEach(async () => {
  api = await JobApi.start();
  await api.join("a", { name: "worker-1" });
});

describe("GET /jobs", () => {
  // holds: jobs-pages
  it("lists newest first, in pages, with filters and a signed cursor", async () => {
    for (let n = 0; n < 5; n++) {
      await api.submit({ name: `n${n}`, labels: { odd: String(n % 2) }, algorithm: "ppo" });
    }
    const first = await api.call("GET", "/jobs?limit=2&label=odd=0&algorithm=ppo");
    const names = (reply: typeof first) => reply.body?.data?.map((job) => job.name);
    expect(names(first)).toEqual(["n4", "n2"]);
    const cursor = first.body?.next_cursor;
    const rest = await api.call("GET", `/jobs?limit=2&label=odd=0&algorithm=ppo&cursor=${cursor}`);
    expect(names(rest)).toEqual(["n0"]);
    expect(rest.body).toMatchObject({ has_more: false, next_cursor: null });
    expect((await api.call("GET", `/jobs?limit=2&cursor=${cursor}`)).status).toBe(400);
    expect((await api.call("GET", "/jobs?cursor=AAAA")).status).toBe(400);
    expect((await api.call("GET", "/jobs?state=asleep")).status).toBe(400);
    expect((await api.call("GET", "/jobs?colour=red")).status).toBe(400);
    expect(names(await api.call("GET", "/jobs?state=failed,cancelled"))).toEqual([]);
    expect(names(await api.call("GET", "/jobs?since=2999-01-01T00:00:00Z"))).toEqual([]);
  });
});

describe("GET /jobs/{id}/events", () => {
  it("ends at once beyond a job's end, without old progress", async () => {
    const id = await api.submit({ name: "over" });
    await api.run(id);
    const progress = { atMs: Date.now(), step: 3 };
    await api.propose({ type: "jobs.progress", entries: [{ jobId: id, attempt: 1, progress }] });
    expect(api.master.control.state.jobs.get(id)?.progress).toMatchObject({ step: 3 });
    await api.report(id, "exited", { endedAtMs: 1 });
    await api.reached(id, "succeeded");
    const stream = async (after: string) => {
      const headers = {
        authorization: `Bearer ${api.master.adminKey}`,
        accept: "text/event-stream",
        "last-event-id": after,
      };
      return (await fetch(`${api.master.url}/api/v1/jobs/${id}/events`, { headers })).text();
    };
    expect(await stream("0.0")).toContain("event: progress");
    await api.propose({ type: "setting.put", name: "job_timeout", value: 90_000 });
    const beyond = `${api.master.control.appliedIndex}.0`;
    expect(await stream(beyond)).toBe(`id: ${beyond}\nretry: 1000\n\n`);
  });
});

describe("GET /jobs/{id}", () => {
  it("explains a waiting job: blockers, nodes, an estimate, the smallest change", async () => {
    await api.run(await api.submit({ resources: { gpu_count: 3 }, max_runtime_hours: 1 }));
    const id = await api.submit({ name: "big", tasks: 1, resources: { gpu_count: 4 } });
    await api.reached(id, "pending");
    const { body } = await api.call("GET", `/jobs/${id}`);
    expect(body).toMatchObject({ state: "pending", phase: "PENDING", attempt: 0 });
    expect(body?.explanation).toMatchObject({
      blockers: [{ reason: "InsufficientGpu", requested: 4, free: 1, limit: 4 }],
      nodes: { total: 1 },
      start_estimate: { likely: expect.stringContaining("T") },
    });
    expect(body?.explanation?.changes[0]).toMatchObject({ field: "gpu_count", to: 1 });
  });

  // holds: jobs-etag, jobs-wait
  it("answers 304 to its ETag, and waits for a change with ?wait", async () => {
    const id = await api.submit({ dependencies: [], resources: { gpu_count: 4 } });
    await api.run(id);
    const seen = await api.call("GET", `/jobs/${id}`);
    const etag = seen.headers.get("etag")!;
    const none = { "if-none-match": etag };
    expect((await api.call("GET", `/jobs/${id}`, undefined, none)).status).toBe(304);
    expect((await api.call("GET", `/jobs/${id}?wait=0.05`, undefined, none)).status).toBe(304);
    const waiting = held(api.call("GET", `/jobs/${id}?wait=30`, undefined, none));
    await api.report(id, "exited", { endedAtMs: 1 });
    expect((await waiting).body).toMatchObject({ state: "succeeded" });
    for (const wait of ["61", "0x10", "1e1", "-1", "", " 1"]) {
      expect((await api.call("GET", `/jobs/${id}?wait=${wait}`)).status, wait).toBe(400);
    }
    // An ended job does not change: it is answered at once, with and without its tag.
    const startedMs = performance.now();
    const ended = await api.call("GET", `/jobs/${id}?wait=60`);
    const last = { "if-none-match": ended.headers.get("etag")! };
    expect((await api.call("GET", `/jobs/${id}?wait=60`, undefined, last)).status).toBe(304);
    expect(performance.now() - startedMs).toBeLessThan(50_000);
  });

  it("is 404 for an unknown job, on every route of a job", async () => {
    const path = `/jobs/${jobId(9)}`;
    expect((await api.call("GET", path)).status).toBe(404);
    expect((await api.call("GET", `${path}/events`)).status).toBe(404);
    expect((await api.call("DELETE", path)).status).toBe(404);
    expect((await api.call("POST", `${path}/suspend`)).status).toBe(404);
  });
});

describe("requests to a job", () => {
  // holds: jobs-etag, jobs-suspend
  it("cancel a waiting job at once, idempotently, and check If-Match", async () => {
    const id = await api.submit({ dependencies: [jobId(7)] });
    const stale = { "if-match": '"1"' };
    expect((await api.call("DELETE", `/jobs/${id}`, undefined, stale)).status).toBe(412);
    await api.reached(id, "pending");
    const { headers: now } = await api.call("GET", `/jobs/${id}`);
    const seen = { "if-match": now.get("etag")! };
    const done = await api.call("DELETE", `/jobs/${id}`, undefined, seen);
    expect(done.body).toMatchObject({ state: "cancelled" });
    expect((await api.call("DELETE", `/jobs/${id}`)).status).toBe(202);
    expect((await api.call("POST", `/jobs/${id}/resume`)).status).toBe(409);
  });

  // holds: jobs-suspend
  it("suspend with a checkpoint; resume starts another attempt", async () => {
    const id = await api.submit();
    await api.run(id);
    const leaving = await api.call("POST", `/jobs/${id}/suspend`);
    expect(leaving.body).toMatchObject({ state: "checkpointing", leaving: { why: "suspend" } });
    await api.report(id, "stopping");
    await api.report(id, "exited", { endedAtMs: 1 });
    await api.reached(id, "suspended");
    expect((await api.call("POST", `/jobs/${id}/resume`)).status).toBe(202);
    await api.reached(id, "scheduled");
    expect((await api.call("GET", `/jobs/${id}`)).body).toMatchObject({ attempt: 2, failures: 0 });
  });

  // holds: jobs-permissions
  it("need their permissions", async () => {
    const { text } = await api.master.addKey({ scopes: ["jobs:read"] });
    const id = await api.submit();
    const as = (method: string, path: string, body?: unknown) =>
      api.call(method, path, body, {}, text).then(({ status }) => status);
    expect(await as("GET", `/jobs/${id}`)).toBe(200);
    expect(await as("POST", "/jobs", { name: "n", command: "x" })).toBe(403);
    expect(await as("DELETE", `/jobs/${id}`)).toBe(403);
    expect(await as("PUT", "/queues/q", {})).toBe(403);
    expect(await as("POST", "/workers/a/drain")).toBe(403);
  });
});
