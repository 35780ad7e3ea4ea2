// holds: consensus-snapshot-repair

import { mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createMessage } from "@heddle/raft/core/message";
import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Transport } from "../ports.ts";
import { DurableLog } from "../replica/durable-log.ts";
import { SnapshotSender } from "./snapshot-sender.ts";
import type { SnapshotTaker } from "./snapshot-taker.ts";

const ID = { index: 1, term: 1 };
const confState = { ...EMPTY_CONF_STATE, voters: [1, 2] };
let directory: string;
let log: DurableLog;
let renewed: number;
let onDamaged: (error: Error) => void;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "heddle-sender-"));
  renewed = 0;
  onDamaged = (error) => {
    throw error;
  };
  log = await DurableLog.open({
    files: nodeStorageFiles,
    directory,
    owner: { cluster: "c", node: "1" },
    segmentBytes: 4096,
    restore: async () => undefined,
    onDamaged: (error) => onDamaged(error),
  });
  const chunks = Array.from({ length: 8 }, () => new Uint8Array(2 ** 20));
  await log.bootstrap({ confState, members: [], lastId: 2 }, chunks);
});
afterEach(async () => {
  await log.close();
  rmSync(directory, { recursive: true });
});

function sender(sendSnapshot: Transport["sendSnapshot"]): SnapshotSender {
  const taker = { renew: async () => void renewed++ } as unknown as SnapshotTaker;
  return new SnapshotSender(log, { sendSnapshot } as Transport, taker);
}

/** The snapshots that this process has open. */
function openSnapshots(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(directory) && path.endsWith(".snap") ? [path] : [];
    } catch {
      return [];
    }
  });
}

test("sender: an intact snapshot is kept when its repair is requested", async () => {
  const before = await log.snapshots.list();
  await sender(async () => undefined).repair(ID);
  expect([await log.snapshots.list(), renewed]).toEqual([before, 0]);
});

test("sender: a lost snapshot is replaced, unless there is a newer one", async () => {
  const repair = (index: number) => sender(async () => undefined).repair({ index, term: 1 });
  const damaged: string[] = [];
  onDamaged = ({ message }) => damaged.push(message);
  await repair(7);
  expect([damaged, renewed]).toEqual([[], 0]);
  const files = readdirSync(directory, { recursive: true, encoding: "utf8" });
  const snapshots = files.filter((name) => name.endsWith(".snap"));
  expect(snapshots).toHaveLength(1);
  for (const name of snapshots) rmSync(join(directory, name));
  await repair(ID.index);
  expect([damaged.length, renewed]).toEqual([1, 1]);
});

test("sender: a broken connection closes the file, and fails without a repair", async () => {
  const opened: string[][] = [];
  const damage = vi.spyOn(log.snapshots, "damage");
  const broken = sender(async (_, { chunks }) => {
    for await (const _chunk of chunks) {
      opened.push(openSnapshots());
      throw new Error("the connection is broken");
    }
  });
  const snapshot = { ...ID, confState, data: new Uint8Array(0) };
  expect(await broken.send(createMessage({ type: "MsgSnap", to: 2, snapshot }))).toBe("failed");
  expect([opened[0]?.length, openSnapshots(), renewed]).toEqual([1, [], 0]);
  expect(damage).not.toHaveBeenCalled();
});
