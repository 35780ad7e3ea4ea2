import { held } from "@heddle/base/testing/held";
import { GoneError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { readTestEvents } from "../../../test/event-reader.ts";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

/** More events than are kept. */
const KEPT = 100_000;

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
  const { control } = server;
  await control.propose({ type: "node.join", atMs: 0, offer: nodeOffer("n1") });
  await control.propose({ type: "job.submit", atMs: 0, jobId: jobId(1), spec: jobSpec() });
  // Each round makes three: draining, drained, ready.
  for (let made = 0; made <= KEPT; made += 3) {
    await control.propose({ type: "node.drain", atMs: made, nodeId: "n1", byMs: made });
    await control.propose({ type: "node.resume", atMs: made, nodeId: "n1" });
  }
});
afterAll(() => server.master.close());

const headers = (after: string) => ({
  authorization: `Bearer ${server.adminKey}`,
  accept: "text/event-stream",
  "last-event-id": after,
});

// holds: jobs-watch-gone
test.each([
  ["/api/v1/events", "/api/v1/jobs"],
  [`/api/v1/jobs/${jobId(1)}/events`, `/api/v1/jobs/${jobId(1)}`],
])("events %s: a dropped position is 410 and links the list", async (path, list) => {
  const reply = await fetch(`${server.url}${path}`, { headers: headers("2.0") });
  expect(reply.status).toBe(410);
  expect(reply.headers.get("content-type")).toContain("application/problem+json");
  expect(reply.headers.get("link")).toBe(`<${list}>; rel="collection"`);
  expect(await reply.json()).toMatchObject({ code: "gone", status: 410, retryable: false });
  expect((await send(server, "GET", list)).status).toBe(200);
  expect((await send(server, "GET", `${path}?after=2.0`)).status).toBe(410);
});

test("position 0.0: begins at the oldest kept event; a kept one is exclusive", async () => {
  const oldest = await readTestEvents(
    `${server.url}/api/v1/events`,
    server.adminKey,
    "0.0",
    (seen) => {
      return seen.length === 2;
    },
  );
  const [first, second] = oldest;
  expect(Number.parseInt(first?.id ?? "", 10)).toBeGreaterThan(2);
  const rest = await readTestEvents(
    `${server.url}/api/v1/events`,
    server.adminKey,
    first?.id,
    (seen) => {
      return seen.length === 1;
    },
  );
  expect(rest[0]?.id).toBe(second?.id);
  const last = server.control.jobs.events.last;
  const page = await send(server, "GET", `/api/v1/events?after=${last.index}.${last.ordinal}`);
  expect(await page.json()).toEqual({ object: "list", data: [], last_event_id: null });
});

test("job stream: from beyond an ended job's end it ends at once", async () => {
  const { control } = server;
  const id = jobId(1);
  await control.propose({ type: "job.request", atMs: 1, jobId: id, request: "cancel" });
  expect(control.state.jobs.get(id)?.state).toBe("cancelled");
  await control.propose({ type: "node.drain", atMs: 2, nodeId: "n1", byMs: 2 });
  const url = `${server.url}/api/v1/jobs/${id}/events`;
  const beyond = `${control.appliedIndex}.0`;
  const reply = await fetch(url, { headers: headers(beyond) });
  expect(await reply.text()).toBe(`id: ${beyond}\nretry: 1000\n\n`);
});

// holds: jobs-watch-gone
test("position: one beyond the log, as before a restore, is 410", async () => {
  for (const path of ["/api/v1/events", `/api/v1/jobs/${jobId(1)}/events`]) {
    const reply = await fetch(`${server.url}${path}`, { headers: headers("99999999.0") });
    expect(reply.status, path).toBe(410);
    expect(reply.headers.get("link")).toMatch(/^<\/api\/v1\/jobs\S*>; rel="collection"$/);
    const problem = (await reply.json()) as { detail: string };
    expect(problem.detail).toMatch(/^The log has not reached 99999999\.0\. Read /);
  }
  const limited = await fetch(`${server.url}/api/v1/events?limit=5`, { headers: headers("") });
  expect(limited.status).toBe(400);
});

test("client: reports it as a GoneError, and continues from a new list", async () => {
  const heddle = new Heddle({ endpoint: server.url, auth_token: server.adminKey });
  await expect(heddle.events.stream({ after: "2.0" }).next()).rejects.toBeInstanceOf(GoneError);
  await expect(heddle.jobs.stream(jobId(1), { after: "2.0" }).next()).rejects.toBeInstanceOf(
    GoneError,
  );
  expect((await heddle.jobs.list().page()).data).toHaveLength(1);
  expect((await heddle.events.list({ after: "0.0", limit: 1 })).data).toHaveLength(1);
});

test("job stream: examines other jobs' events once, and misses none of its own", async () => {
  const { control } = server;
  const id = jobId(2);
  await control.propose({ type: "job.submit", atMs: 3, jobId: id, spec: jobSpec() });
  const { events } = control.jobs;
  const url = `${server.url}/api/v1/jobs/${id}/events`;
  const reads = vi.spyOn(events, "after");
  const newest: number[] = [];
  let received = 0;
  const watched = held(
    readTestEvents(url, server.adminKey, undefined, (seen) => {
      received = seen.length;
      return false;
    }),
  );
  await vi.waitFor(() => expect(received).toBeGreaterThan(0), 100_000);
  for (let atMs = 4; newest.length < 3; atMs += 2) {
    const before = events.last.index;
    const seen = reads.mock.calls.length;
    await control.propose({ type: "node.drain", atMs, nodeId: "n1", byMs: atMs });
    await control.propose({ type: "node.resume", atMs, nodeId: "n1" });
    await vi.waitFor(() => expect(reads.mock.calls.length).toBeGreaterThan(seen), 100_000);
    newest.push(before);
  }
  const froms = reads.mock.calls.map(([from]) => from.index);
  expect(froms[0]).toBe(0);
  expect(froms.at(-1)).toBeGreaterThan(newest[0]!);
  reads.mockRestore();
  await control.propose({ type: "job.request", atMs: 99, jobId: id, request: "cancel" });
  const states = (await watched).map(({ data }) => (data as { state: string }).state);
  expect(states[0]).toBe("accepted");
  expect(states.at(-1)).toBe("cancelled");
});
