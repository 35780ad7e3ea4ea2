// holds: logs-exact

import { createSecretKey } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JobsState } from "@heddle/control/jobs/records/records";
import { ReplicatedControl } from "@heddle/control/replicated-control";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readCursor, writeCursor } from "./log-cursor.ts";
import type { LogItem } from "./log-lines.ts";
import type { LogName } from "./log-name.ts";
import { type LogQuery, LogReader } from "./log-reader.ts";
import { LogRepair } from "./log-repair.ts";
import { LogStore } from "./log-store.ts";

const pepper = createSecretKey(Buffer.alloc(32, 3));
const name: LogName = { jobId: "job_A", attempt: 1, rank: 0, stream: "stdout" };
const silent = { info: () => {}, warn: () => {}, error: () => {} };
const state: JobsState = new ReplicatedControl().state;
const never = new AbortController().signal;

let folder: string;
const stores: LogStore[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-logs-"));
});

afterEach(async () => {
  for (const store of stores.splice(0)) await store.close();
  rmSync(folder, { recursive: true });
});

function openStore(directory: string): LogStore {
  const bounds = { maxBytes: Number.MAX_SAFE_INTEGER, maxAgeMs: Number.MAX_SAFE_INTEGER };
  const store = new LogStore({
    directory: join(folder, directory),
    ...bounds,
    syncPauseMs: 0,
    log: silent,
  });
  stores.push(store);
  return store;
}

function readerOf(store: LogStore, known = state): LogReader {
  const repair = new LogRepair({
    store,
    credentials: { clusterToken: "t" },
    sources: () => [],
    log: silent,
  });
  const isAttached = () => known !== state;
  return new LogReader({ store, repair, state: () => known, logTimeMs: () => LOG_MS, isAttached });
}

/** All that is available for the query now, and the cursor after it, as text. */
async function readAll(
  store: LogStore,
  query: Partial<LogQuery> = {},
  cursor?: string,
  known = state,
) {
  const items: LogItem[] = [];
  let after = cursor;
  const asked: LogQuery = {
    jobId: "job_A",
    streams: ["stdout", "stderr"],
    follow: false,
    ...query,
    cursor: cursor === undefined ? undefined : readCursor(cursor, "job_A", pepper),
  };
  for await (const batch of await readerOf(store, known).read(asked, never)) {
    items.push(...batch.items);
    after = writeCursor(batch.cursor, pepper);
  }
  return { items, cursor: after };
}

function textOf(items: readonly LogItem[]): string {
  return items.map(({ text, ended }) => `${text}${ended ? "\n" : ""}`).join("");
}

async function put(store: LogStore, offset: number, text: string, unixMs: number, first = 0) {
  const data = Buffer.from(text);
  await store.append(name, { offset, data, times: [{ at: 0, unixMs }], complete: false, first });
}

test("logs: the bytes read are those written, over cuts, repeats and restarts", async () => {
  const line = fc.oneof(
    fc.string({ unit: "grapheme-ascii", maxLength: 40 }),
    fc.integer({ min: 60_000, max: 140_000 }).map((length) => "x".repeat(length)),
  );
  const step = fc.record({
    /** How far the piece extends the log, and how far back it begins. */
    bytes: fc.integer({ min: 1, max: 70_000 }),
    back: fc.integer({ min: 0, max: 300 }),
    restart: fc.boolean(),
    /** The store that is read after the step, if any. */
    read: fc.constantFrom("none", "a", "b"),
    /** Whether the other store has the piece too. */
    lag: fc.boolean(),
  });
  const runs = fc.tuple(
    fc.array(line, { minLength: 1, maxLength: 12 }),
    fc.array(step, { minLength: 3, maxLength: 14 }),
  );
  let run = 0;
  await fc.assert(
    fc.asyncProperty(runs, async ([lines, steps]) => {
      run += 1;
      const written = Buffer.from(lines.map((text) => `${text}\n`).join(""));
      const names = { a: `a${run}`, b: `b${run}` };
      const held = { a: openStore(names.a), b: openStore(names.b) };
      const ends = { a: 0, b: 0 };
      const carry = async (to: "a" | "b", end: number, back: number) => {
        const offset = Math.max(0, ends[to] - back);
        const data = written.subarray(offset, end);
        const complete = end === written.byteLength;
        const times = [{ at: 0, unixMs: end }];
        await held[to].append(name, { offset, data, times, complete, first: 0 });
        ends[to] = end;
      };
      let cursor: string | undefined;
      let text = "";
      for (const { bytes, back, restart, read, lag } of [...steps, last, last]) {
        const end = Math.min(written.byteLength, ends.a + bytes);
        if (end > ends.a) await carry("a", end, back);
        if (!lag && ends.b < ends.a) await carry("b", ends.a, back);
        if (restart) {
          await held.a.close();
          held.a = openStore(names.a);
        }
        // A master that lags gives nothing new, and nothing twice.
        if (read === "none" || ends[read] === 0) continue;
        const got = await readAll(held[read], {}, cursor);
        text += textOf(got.items);
        cursor = got.cursor;
      }
      expect(text).toBe(written.toString());
      await held.a.close();
      await held.b.close();
    }),
    { numRuns: 25 },
  );
});

/** Ships the rest, and reads it. */
const last = {
  bytes: Number.MAX_SAFE_INTEGER,
  back: 0,
  restart: false,
  lag: false,
  read: "b" as const,
};

test("gaps: a gap is marked with its length, and later offsets stay", async () => {
  const store = openStore("gap");
  await put(store, 0, "one\ntw", 1);
  await put(store, 100, "rest\nlast\n", 2, 96);
  expect((await store.state(name)).end).toBe(96);
  await put(store, 96, "the rest\n", 2, 96);
  const { items } = await readAll(store);
  expect(items.map(({ text, gapBytes, offset }) => [text.toString(), gapBytes, offset])).toEqual([
    ["one", 0, 0],
    ["tw", 0, 4],
    ["", 90, 6],
    ["the rest", 0, 96],
  ]);
});

test("query: tail counts lines; since and until use their first byte's time", async () => {
  const store = openStore("chosen");
  await put(store, 0, "a1\na2\nlong", 1_000);
  await put(store, 10, " line\nb1\n", 2_000);
  await put(store, 19, "c1\n", 3_000);
  const lines = async (query: Partial<LogQuery>) =>
    (await readAll(store, query)).items.map(({ text }) => text.toString());
  expect(await lines({ tail: 2 })).toEqual(["b1", "c1"]);
  expect(await lines({ tail: 100 })).toEqual(["a1", "a2", "long line", "b1", "c1"]);
  expect(await lines({ tail: 0 })).toEqual([]);
  expect(await lines({ sinceMs: 1_500 })).toEqual(["b1", "c1"]);
  expect(await lines({ untilMs: 1_500 })).toEqual(["a1", "a2", "long line"]);
  expect(await lines({ sinceMs: 1_500, untilMs: 2_500 })).toEqual(["b1"]);
  expect(await lines({ streams: ["stderr"] })).toEqual([]);
});

/** Differs from the wall clock, which may be wrong. */
const LOG_MS = 7_200_000;

/** State with the job ended at that time, on an attached node. */
function stateOfEnded(endedAtMs: number): JobsState {
  const job = { id: "job_A", state: "succeeded", attempt: 1, tasks: 1, endedAtMs };
  const task = { jobId: "job_A", attempt: 1, rank: 0, nodeId: "a", phase: "exited" };
  const { state: empty } = new ReplicatedControl();
  const held = { jobs: new Map([["job_A", job]]), tasks: new Map([["job_A/1/0", task]]) };
  return { ...empty, ...held } as unknown as JobsState;
}

test("ended job: what its worker still ships is part of its log", async () => {
  const known = stateOfEnded(LOG_MS);
  const store = openStore("a");
  const query: Partial<LogQuery> = { streams: ["stdout"] };
  await put(store, 0, "one\n", 1);
  const whole = readAll(store, query, undefined, known);
  const tail = readAll(store, { ...query, tail: 1 }, undefined, known);
  await new Promise((resolve) => setTimeout(resolve, 100));
  await put(store, 4, "two\n", 2);
  await store.append(name, {
    offset: 8,
    data: Buffer.alloc(0),
    times: [],
    complete: true,
    first: 0,
  });
  expect(textOf((await whole).items)).toBe("one\ntwo\n");
  expect(textOf((await tail).items)).toBe("two\n");
});

test("ended job: no reader waits for logs missing an hour after its end", async () => {
  const known = stateOfEnded(LOG_MS - 3_600_000);
  const store = openStore("a");
  await put(store, 0, "one\n", 1);
  const watched = vi.spyOn(store, "onGrown");
  expect(textOf((await readAll(store, { streams: ["stdout"] }, undefined, known)).items)).toBe(
    "one\n",
  );
  // Only the read itself subscribes.
  expect(watched).toHaveBeenCalledTimes(1);
});

test("order: lines of several tasks by time, each task's in its own order", async () => {
  const store = openStore("merged");
  const other = { ...name, rank: 1 };
  await put(store, 0, "a\n", 10);
  await put(store, 2, "d\n", 40);
  const piece = { times: [{ at: 0, unixMs: 20 }], complete: false, first: 0 };
  await store.append(other, { ...piece, offset: 0, data: Buffer.from("b\nc\n") });
  const { items, cursor } = await readAll(store);
  expect(items.map(({ text }) => text.toString())).toEqual(["a", "b", "c", "d"]);
  await put(store, 4, "e\n", 50);
  expect(textOf((await readAll(store, {}, cursor)).items)).toBe("e\n");
});

test("incarnations: a replaced task's log precedes its replacement's", async () => {
  const store = openStore("replaced");
  const lives = ["start\na\n", "start\nb\n", "start\nc\n"];
  for (const [incarnation, text] of lives.entries()) {
    // The clock of each node is behind the previous one's.
    const times = [{ at: 0, unixMs: 1_000 * (9 - incarnation) }];
    const piece = { offset: 0, data: Buffer.from(text), times, complete: false, first: 0 };
    await store.append({ ...name, ...(incarnation > 0 && { incarnation }) }, piece);
  }
  const { items, cursor = "" } = await readAll(store);
  expect(textOf(items)).toBe(lives.join(""));
  const more = { times: [], complete: false, first: 0 };
  await store.append({ ...name, incarnation: 1 }, { offset: 8, data: Buffer.from("d\n"), ...more });
  await store.append({ ...name, incarnation: 3 }, { offset: 0, data: Buffer.from("e\n"), ...more });
  expect(textOf((await readAll(store, {}, cursor)).items)).toBe("d\ne\n");
});

test("cursor: one that this cluster did not issue for the job is refused", async () => {
  const store = openStore("signed");
  await put(store, 0, "a\n", 1);
  const { cursor = "" } = await readAll(store);
  expect(readCursor(cursor, "job_A", pepper).positions).toEqual([
    { attempt: 1, rank: 0, stream: "stdout", offset: 2 },
  ]);
  const refused = expect.objectContaining({ code: "invalid_value", param: "cursor" });
  for (const [text, job] of [
    [cursor.replace(/^./, "X"), "job_A"],
    [cursor, "job_B"],
    ["", "job_A"],
    ["abc.def", "job_A"],
  ] as const) {
    expect(() => readCursor(text, job, pepper)).toThrow(refused);
  }
  expect(() => readCursor(cursor, "job_A", createSecretKey(Buffer.alloc(32, 4)))).toThrow(refused);
});

test("retention: the least recently written jobs' logs are removed first", async () => {
  const store = new LogStore({
    directory: join(folder, "bounded"),
    maxBytes: 40_000,
    maxAgeMs: 3_600_000,
    log: silent,
  });
  stores.push(store);
  for (const jobId of ["job_1", "job_2", "job_3"]) {
    const data = Buffer.alloc(16_384, 65);
    await store.append(
      { ...name, jobId },
      { offset: 0, data, times: [], complete: true, first: 0 },
    );
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await store.sweep(Date.now());
  expect(await store.list("job_1")).toEqual([]);
  expect(await store.list("job_3")).toHaveLength(1);
  await store.sweep(Date.now() + 7_200_000);
  expect(await store.list("job_3")).toEqual([]);
});
