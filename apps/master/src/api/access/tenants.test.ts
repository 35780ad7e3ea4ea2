// holds: access-projects

import type { Route } from "@heddle/contracts/api/cluster";
import type { EventPage } from "@heddle/contracts/api/events";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const HELLO = { command: "echo hello" };
const NO_ID = "job_00000000000000000000000000";

let server: TestMaster;
let vision: string;
let speech: string;
/** A job of the project `vision`. */
let jobId: string;

beforeAll(async () => {
  server = await startTestMaster();
  const keyOf = async (project: string) =>
    (await server.addKey({ scopes: [], role: "developer", project })).text;
  [vision, speech] = [await keyOf("vision"), await keyOf("speech")];
  const reply = await submit(vision, { name: "canary-name" });
  expect(reply.status).toBe(202);
  jobId = ((await reply.json()) as { job_id: string }).job_id;
});
afterAll(() => server.master.close());

const submit = (key: string, more: object, headers: Record<string, string> = {}) =>
  send(server, "POST", "/api/v1/jobs", { ...HELLO, ...more }, { key, headers });
const get = (path: string, key: string) =>
  send(server, "GET", `/api/v1/${path}`, undefined, { key });

describe("a job of another project", () => {
  it("is 404 on every route of jobs, in the words of one that does not exist", async () => {
    const listed = await send(server, "GET", "/api/v1/endpoints");
    const { data } = (await listed.json()) as { data: Route[] };
    const ofJobs = data.filter(({ path }) => path.startsWith("/api/v1/jobs/:id"));
    expect(ofJobs.length).toBeGreaterThan(6);
    for (const { method, path } of ofJobs) {
      const at = (id: string) => path.replace(":id", id).replace(/[:*][A-Za-z]+/g, "x");
      const ask = (id: string) => send(server, method, at(id), undefined, { key: speech });
      const [foreign, unknown] = [await ask(jobId), await ask(NO_ID)];
      expect([foreign.status, unknown.status], `${method} ${path}`).toEqual([404, 404]);
      const words = async (reply: Response, id: string) => {
        const { request_id: _, ...body } = (await reply.json()) as Record<string, unknown>;
        return JSON.stringify(body).replaceAll(id, "ID");
      };
      expect(await words(foreign, jobId), path).toBe(await words(unknown, NO_ID));
    }
    expect((await get(`jobs/${jobId}`, vision)).status).toBe(200);
    expect((await get(`jobs/${jobId}`, server.adminKey)).status).toBe(200);
  });

  it("is in no list, whatever the filter", async () => {
    for (const query of ["", "?project=vision", "?name=canary-name", "?state=pending"]) {
      const text = await (await get(`jobs${query}`, speech)).text();
      expect(text, query).not.toMatch(/canary|vision/);
      expect(JSON.parse(text), query).toMatchObject({ data: [] });
    }
    const own = (await (await get("jobs", vision)).json()) as { data: unknown[] };
    expect(own.data).toHaveLength(1);
  });

  it("is in no list and no stream of events", async () => {
    const ids = async (key: string) => {
      const { data } = (await (await get("events", key)).json()) as EventPage;
      return data.flatMap((event) => (event.type === "job" ? [event.job_id] : []));
    };
    expect(await ids(vision)).toContain(jobId);
    expect(await ids(speech)).toEqual([]);
    const headers = { accept: "text/event-stream", "last-event-id": "0.0" };
    const gone = new AbortController();
    const options = { key: speech, headers, signal: gone.signal };
    const stream = await send(server, "GET", "/api/v1/events", undefined, options);
    await submit(vision, { name: "canary-later" });
    const own = await submit(speech, { name: "own" });
    const { job_id } = (await own.json()) as { job_id: string };
    let text = "";
    const reader = stream.body?.getReader();
    while (!text.includes(job_id)) {
      const piece = await reader?.read();
      if (!piece || piece.done) break;
      text += Buffer.from(piece.value).toString();
    }
    gone.abort();
    expect(text).toContain(job_id);
    expect(text).not.toMatch(/canary|vision/);
    expect(text).not.toContain(jobId);
  });

  it("is no dependency, in the words of an unknown one", async () => {
    const words = async (id: string) => {
      const reply = await submit(speech, { name: "depends", dependencies: [id] });
      expect(reply.status).toBe(422);
      return ((await reply.json()) as { detail: string }).detail.replaceAll(id, "ID");
    };
    expect(await words(jobId)).toBe(await words(NO_ID));
    const own = await submit(vision, { name: "depends", dependencies: [jobId] });
    expect(own.status).toBe(202);
  });

  it("does not take its name in this project", async () => {
    expect((await submit(speech, { name: "canary-name" })).status).toBe(202);
    expect((await submit(vision, { name: "canary-name" })).status).toBe(409);
  });
});

describe("another project", () => {
  it("takes no job, whether it exists or not", async () => {
    for (const project of ["vision", "default", "no-such-project"]) {
      const reply = await submit(speech, { name: "x", project });
      expect(reply.status, project).toBe(403);
      const { detail } = (await reply.json()) as { detail: string };
      expect(detail).toContain(`lacks the permission jobs:create in the project ${project}`);
    }
    const dry = { ...HELLO, name: "x", project: "vision" };
    const path = "/api/v1/jobs?dry_run=true";
    expect((await send(server, "POST", path, dry, { key: speech })).status).toBe(403);
  });

  it("is not listed, and is 404 as one that does not exist", async () => {
    for (const project of ["vision", "speech"]) {
      await send(server, "PUT", `/api/v1/projects/${project}`, { weight: 2 });
    }
    const { data } = (await (await get("projects", speech)).json()) as { data: { name: string }[] };
    expect(data.map(({ name }) => name)).toEqual(["speech"]);
    expect((await get("projects/vision", speech)).status).toBe(404);
    expect((await get("projects/no-such-project", speech)).status).toBe(404);
    expect((await get("projects/speech", speech)).status).toBe(200);
  });

  it("shares no idempotency key", async () => {
    const headers = { "idempotency-key": "same-key-1" };
    const [one, other] = [
      await submit(vision, { name: "same" }, headers),
      await submit(speech, { name: "same" }, headers),
    ];
    expect([one.status, other.status]).toEqual([202, 202]);
    expect(other.headers.get("idempotency-replayed")).toBeNull();
    const id = async (reply: Response) => ((await reply.json()) as { job_id: string }).job_id;
    expect(await id(one)).not.toBe(await id(other));
  });

  it("has answers of its own to a key that names it for a call", async () => {
    const { id, text } = await server.addKey({ scopes: [], role: "developer", project: "vision" });
    const bound = { kind: "key", subject: id, role: "developer", project: "speech" };
    expect((await send(server, "POST", "/api/v1/bindings", bound)).status).toBe(200);
    const key = { "idempotency-key": "two-projects" };
    const there = await submit(text, { name: "both" }, { ...key, "x-heddle-project": "speech" });
    expect(there.status).toBe(202);
    expect((await submit(text, { name: "both" }, key)).status).toBe(422);
    const { job_id } = (await there.json()) as { job_id: string };
    const job = await (await get(`jobs/${job_id}`, speech)).json();
    expect(job).toMatchObject({ project: "speech" });
  });
});

describe("a caller of one project", () => {
  it("reads and cancels only where it may", async () => {
    const viewer = (await server.addKey({ scopes: [], role: "viewer", project: "vision" })).text;
    expect((await get(`jobs/${jobId}`, viewer)).status).toBe(200);
    const path = `/api/v1/jobs/${jobId}`;
    expect((await send(server, "DELETE", path, undefined, { key: viewer })).status).toBe(403);
    expect((await send(server, "DELETE", path, undefined, { key: speech })).status).toBe(404);
    expect((await send(server, "DELETE", path, undefined, { key: vision })).status).toBe(202);
  });
});
