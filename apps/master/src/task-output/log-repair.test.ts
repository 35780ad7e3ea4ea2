// holds: logs-store

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { ReplicatedControl } from "@heddle/control/replicated-control";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SECRETS } from "../../test/test-master.ts";
import { CONTROL_PLANE } from "../control-plane/control-plane.ts";
import type { LogName } from "./log-name.ts";
import { LogRepair } from "./log-repair.ts";
import { LogStore } from "./log-store.ts";
import { TaskLogsController } from "./task-logs.controller.ts";
import { TaskSecrets } from "./task-secrets.ts";

const credentials = { clusterToken: "a-token-for-tests-only" };
const silent = { info: () => {}, warn: () => {}, error: () => {} };
const name: LogName = { jobId: "job_A", attempt: 1, rank: 0, stream: "stdout" };
const { state } = new ReplicatedControl();

class LogsModule {}

let folder: string;
const stores: LogStore[] = [];
const servers: BoundServer[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-log-repair-"));
});
afterEach(async () => {
  for (const { server } of servers.splice(0)) await closeServer(server, 100);
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

/** Serves another master's store; returns its address. */
async function serve(store: LogStore): Promise<string> {
  const bound = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  servers.push(bound);
  const providers = [
    { provide: LogStore, useValue: store },
    { provide: TaskSecrets, useValue: SECRETS },
    { provide: CONTROL_PLANE, useValue: { state } },
  ];
  const controllers = [TaskLogsController];
  await serveControllers({ module: LogsModule, controllers, providers }, bound.server);
  return bound.address;
}

/** Bytes that encode their own offset. */
function bytesAt(offset: number, length: number): Buffer {
  const words = Buffer.alloc(length);
  for (let at = 0; at < length; at++) words[at] = (offset + at) % 251;
  return words;
}

async function put(store: LogStore, from: number, to: number, complete = false, first = 0) {
  const step = 1_000_000;
  for (let offset = from; offset < to; offset += step) {
    const data = bytesAt(offset, Math.min(step, to - offset));
    const isLast = complete && offset + data.byteLength === to;
    const times = [{ at: 0, unixMs: 1_000 + offset }];
    await store.append(name, { offset, data, times, complete: isLast, first });
  }
}

async function contentOf(store: LogStore, from: number, to: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let at = from; at < to; ) {
    const piece = await store.read(name, at, 1_000_000);
    if (!piece || piece.data.byteLength === 0) break;
    pieces.push(Buffer.from(piece.data));
    at = piece.offset + piece.data.byteLength;
  }
  return Buffer.concat(pieces);
}

const ofMaster = (address: string) => ({ address, role: "master" as const });

function repairOf(store: LogStore, sources: readonly string[]): LogRepair {
  return new LogRepair({ store, credentials, sources: () => sources.map(ofMaster), log: silent });
}

test("repair: missing bytes come from the first source that has them", async () => {
  const whole = openStore("whole");
  const size = 9_500_000;
  await put(whole, 0, size, true);
  const half = openStore("half");
  await put(half, 0, 2_300_000);
  const unreachable = `127.0.0.1:${await freePort()}`;
  const empty = await serve(openStore("empty"));
  const part = openStore("part");
  await put(part, 0, 1_200_000);
  const sources = [unreachable, empty, await serve(part), await serve(whole)];
  await repairOf(half, sources).repair(name);
  expect(await half.state(name)).toEqual({ end: size, first: 0, complete: true });
  expect((await contentOf(half, 0, size)).equals(bytesAt(0, size))).toBe(true);
  expect(await half.offsetAt(name, 1_000 + 2_000_000)).toBe(
    await whole.offsetAt(name, 1_000 + 2_000_000),
  );
});

test("repair: a source without its oldest bytes gives the rest", async () => {
  const cut = openStore("cut");
  await put(cut, 500_000, 900_000, true, 500_000);
  const mine = openStore("mine");
  const source = await serve(cut);
  let asked = 0;
  const repair = new LogRepair({
    store: mine,
    credentials,
    log: silent,
    sources: () => {
      asked += 1;
      return [ofMaster(source)];
    },
  });
  await Promise.all([repair.repair(name), repair.repair(name), repair.repair(name)]);
  expect(asked).toBe(1);
  expect(await mine.state(name)).toEqual({ end: 900_000, first: 500_000, complete: true });
  expect((await contentOf(mine, 500_000, 900_000)).equals(bytesAt(500_000, 400_000))).toBe(true);
  for (const bound of servers) await closeServer(bound.server, 100);
  await repair.repair(name);
  expect((await mine.state(name)).complete).toBe(true);
});

test("repair: if no source has the log, nothing is created and nothing fails", async () => {
  const mine = openStore("mine");
  const other = await serve(openStore("other"));
  const foreign = new LogRepair({
    store: mine,
    log: silent,
    sources: () => [ofMaster(other)],
    credentials: { clusterToken: "of another cluster" },
  });
  await foreign.repair(name);
  await repairOf(mine, [other]).repair(name);
  await repairOf(mine, []).repair(name);
  expect(await mine.list("job_A")).toEqual([]);
});

test("repair: masters with different gaps converge to all available bytes", async () => {
  const [a, b, c] = [openStore("a"), openStore("b"), openStore("c")];
  const size = 3_000_000;
  // The worker deleted all before the last third while the masters had different parts.
  for (const [store, had] of [
    [a, 700_000],
    [b, 0],
    [c, 450_000],
  ] as const) {
    await put(store, 0, had);
    await put(store, 2_000_000, size, true, 2_000_000);
  }
  const addresses = await Promise.all([a, b, c].map(serve));
  for (const [at, store] of [a, b, c].entries()) {
    await repairOf(store, addresses.toSpliced(at, 1)).repair(name);
    expect(await store.gaps(name)).toMatchObject([{ start: 700_000, end: 2_000_000 }]);
    expect(await store.read(name, 0, 1)).toMatchObject({ offset: 0 });
    expect((await contentOf(store, 0, 700_000)).subarray(0, 700_000)).toEqual(bytesAt(0, 700_000));
    expect(await store.offsetAt(name, 1_000)).toBe(0);
  }
  await b.close();
  const again = openStore("b");
  expect(await again.gaps(name)).toMatchObject([{ start: 700_000, end: 2_000_000 }]);
  expect((await contentOf(again, 0, 700_000)).subarray(0, 700_000)).toEqual(bytesAt(0, 700_000));
  expect(await again.state(name)).toMatchObject({ end: size, complete: true });
});
