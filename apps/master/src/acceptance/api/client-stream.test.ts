import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Heddle } from "@heddle/client/heddle";
import type { JobUpdate } from "@heddle/client/resources/jobs/job-stream";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { JobCluster } from "../../../test/job-cluster.ts";
import { MasterGroup } from "../../../test/master-group.ts";

/** It waits while no worker is there: it is suspended, resumed and cancelled. */
const SPEC = { name: "streamed", command: "true" };

/**
 * A client of the whole group. Masters are addressed by name, because a restart changes their
 * ports:
 * `http://master-2` leads to the present port of master-2. `opened` receives the masters on which
 * streams were opened, in order.
 */
function clientOf(
  group: MasterGroup,
  names: readonly string[] = group.names,
  opened: string[] = [],
): Heddle {
  const followed: typeof fetch = (input, init) => {
    const { hostname, pathname, search } = new URL(String(input));
    const url = group.url(hostname);
    if (url && /\/(events|logs)$/.test(pathname)) opened.push(hostname);
    if (url === undefined) return Promise.reject(new TypeError(`${hostname} does not run`));
    return fetch(`${url}${pathname}${search}`, init);
  };
  return new Heddle({
    endpoint: names.map((name) => `http://${name}`),
    auth: () => group.adminKey,
    fetch: followed,
    maxRetries: 6,
  });
}

/** Collects a job's updates until they end. */
function watch(heddle: Heddle, id: string, after?: string) {
  const updates: JobUpdate[] = [];
  const ended = held(
    (async () => {
      for await (const update of heddle.jobs.stream(id, { after })) updates.push(update);
    })(),
  );
  return { updates, ended };
}

const positionsOf = (updates: readonly JobUpdate[]) =>
  updates.flatMap((update) => (update.type === "state" ? [update.id] : []));

/** Suspends and resumes a waiting job: two updates a round. */
async function move(heddle: Heddle, id: string, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    await heddle.jobs.suspend(id);
    await heddle.jobs.resume(id);
  }
}

function comparePositions(a: string, b: string): number {
  const [index = 0, ordinal = 0] = a.split(".").map(Number);
  const [otherIndex = 0, otherOrdinal = 0] = b.split(".").map(Number);
  return index - otherIndex || ordinal - otherOrdinal;
}

/** Checks a stream that may have broken: each update once, in order, to the end. */
async function expectWhole(heddle: Heddle, id: string, updates: readonly JobUpdate[]) {
  const positions = positionsOf(updates);
  expect(new Set(positions).size).toBe(positions.length);
  expect([...positions].sort(comparePositions)).toEqual(positions);
  const again = watch(heddle, id);
  await again.ended;
  expect(positions).toEqual(positionsOf(again.updates));
  const [first, last] = [updates[0]?.phase, updates.at(-1)?.phase];
  expect([first, last]).toEqual(["ACCEPTED", "CANCELLED"]);
  // From each position on, any master returns the rest.
  for (const at of [0, Math.floor(positions.length / 2), positions.length - 2]) {
    const rest = watch(heddle, id, positions[at]);
    await rest.ended;
    expect(positionsOf(rest.updates)).toEqual(positions.slice(at + 1));
  }
}

describe("a job's stream from the client", () => {
  let cluster: JobCluster;
  let group: MasterGroup;
  beforeAll(async () => {
    cluster = new JobCluster(3, { leaseMs: 30_000, nodeLostMs: 20_000 });
    group = cluster.masters;
    await group.startAll();
    await group.leader();
  });
  afterEach((context) => cluster.clear(context));
  afterAll(() => cluster.close());

  // holds: client-stream
  it("resumes over killed and restarted masters, without gap or repeat", async () => {
    const opened: string[] = [];
    const heddle = clientOf(group, group.names, opened);
    const { job_id: id } = await heddle.jobs.create(SPEC);
    await eventually(async () => (await heddle.jobs.get(id)).state === "pending", "it waits");
    const watched = watch(heddle, id);
    await move(heddle, id, 3);
    // The stream's master first in the list, then the others.
    for (const name of group.names) {
      const before = watched.updates.length;
      await group.end(name, "SIGKILL");
      await group.leader();
      await move(heddle, id, 2);
      await eventually(async () => watched.updates.length >= before + 4, "updates come");
      await group.start(name);
      await group.leader();
    }
    await heddle.jobs.cancel(id);
    await watched.ended;
    expect(new Set(opened).size).toBeGreaterThanOrEqual(2);
    await expectWhole(heddle, id, watched.updates);
  });

  // holds: client-stream
  it("survives a clean and an unclean restart of the only master", async ({ onTestFinished }) => {
    const group = new MasterGroup(1);
    onTestFinished(() => group.close());
    await group.startAll();
    const heddle = clientOf(group);
    const { job_id: id } = await heddle.jobs.create(SPEC);
    await eventually(async () => (await heddle.jobs.get(id)).state === "pending", "it waits");
    const watched = watch(heddle, id);
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      await move(heddle, id, 2);
      const before = watched.updates.length;
      await group.end("master-1", signal);
      await group.start("master-1");
      await group.leader();
      await heddle.jobs.suspend(id);
      await heddle.jobs.resume(id);
      await eventually(async () => watched.updates.length >= before + 2, "the stream continues");
    }
    await heddle.jobs.cancel(id);
    await watched.ended;
    await expectWhole(heddle, id, watched.updates);
    expect(await heddle.jobs.wait(id)).toMatchObject({ state: "cancelled", phase: "CANCELLED" });
  });

  it("ends with the caller's signal, a missing job, and an ended job", async () => {
    const heddle = clientOf(group);
    const { job_id: id } = await heddle.jobs.create(SPEC, { idempotencyKey: "once" });
    expect(await heddle.jobs.create(SPEC, { idempotencyKey: "once" })).toMatchObject({
      job_id: id,
    });
    const controller = new AbortController();
    const stream = heddle.jobs.stream(id, { signal: controller.signal });
    await stream.next();
    const next = (async () => {
      for await (const update of stream) expect(update.phase).toBe("PENDING");
    })();
    await delay(50);
    controller.abort();
    await expect(next).rejects.toMatchObject({ name: "AbortedError" });
    await expect(heddle.jobs.stream("job_none").next()).rejects.toMatchObject({
      name: "NotFoundError",
    });
    await heddle.jobs.cancel(id);
    const whole = watch(heddle, id);
    await whole.ended;
    const over = watch(heddle, id, positionsOf(whole.updates).at(-1));
    await over.ended;
    expect(over.updates).toEqual([]);
    const error = await heddle.jobs.suspend(id).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ name: "ConflictError", request_id: expect.any(String) });
  });

  // holds: client-logs
  it("returns every log line once when its master is killed", async ({ onTestFinished }) => {
    const opened: string[] = [];
    await cluster.startWorker("worker-1");
    onTestFinished(() => cluster.end("worker-1", "SIGKILL"));
    const leader = await group.leader();
    // Read from a follower first, then from the next.
    const names = [...group.names.filter((name) => name !== leader), leader];
    // The job does not end before the check.
    const gate = join(group.folder, "gate");
    const upTo = (n: number) =>
      `while [ $i -lt ${n} ]; do i=$((i+1)); echo line $i; sleep 0.03; done`;
    const wait = `until [ -e ${gate} ]; do sleep 0.05; done`;
    const command = ["i=0", upTo(100), wait, upTo(200)].join("; ");
    const resources = { cpu_cores: 0.2, memory_gb: 0.2 };
    const id = await cluster.submit({ name: "lines", command, resources });
    await cluster.reaches(id, "running");
    const lines: string[] = [];
    const read = held(
      (async () => {
        const entries = clientOf(group, names, opened).jobs.logs(id, {
          follow: true,
          stream: "stdout",
        });
        for await (const entry of entries) if (entry.type === "line") lines.push(entry.text);
      })(),
    );
    await eventually(async () => lines.length > 20, "lines come");
    await group.end(names[0] ?? "", "SIGKILL");
    writeFileSync(gate, "");
    await read;
    expect(lines).toEqual(Array.from({ length: 200 }, (_, at) => `line ${at + 1}`));
    expect(new Set(opened).size).toBeGreaterThanOrEqual(2);
    await group.startMissing();
  });
});
