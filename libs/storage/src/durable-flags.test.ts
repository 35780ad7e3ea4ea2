// holds: wal-sync

import { constants, existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { dedicatedStorageFiles, nodeStorageFiles, type StorageFiles } from "./storage-files.ts";
import { WAL_KINDS } from "./wal-record.ts";
import { WriteAheadLog } from "./write-ahead-log.ts";

// Only a power cut shows whether a resolved write is on the disk. So the test reads the flags of
// open files from the kernel.

const hasFlags = existsSync("/proc/self/fdinfo");
const SEGMENT_BYTES = 4_096;

let directory: string;
beforeEach(async () => {
  directory = await realpath(await mkdtemp(join(tmpdir(), "heddle-flags-")));
});
afterEach(() => rm(directory, { recursive: true }));

/** This process's open files below the directory: by name, whether writes are synced. */
function openFiles(): Record<string, boolean> {
  const found: Record<string, boolean> = {};
  for (const descriptor of readdirSync("/proc/self/fd")) {
    try {
      const path = readlinkSync(`/proc/self/fd/${descriptor}`);
      if (!path.startsWith(`${directory}/`)) continue;
      const info = readFileSync(`/proc/self/fdinfo/${descriptor}`, "utf8");
      const flags = Number.parseInt(/^flags:\s*(\d+)$/m.exec(info)?.[1] ?? "", 8);
      found[path.slice(directory.length + 1)] = (flags & constants.O_DSYNC) !== 0;
    } catch {
      // The descriptor of the listing itself is closed by now.
    }
  }
  return found;
}

const DISKS: [string, StorageFiles][] = [
  ["the pool", nodeStorageFiles],
  ["a dedicated thread", dedicatedStorageFiles(() => performance.now())],
];

test.skipIf(!hasFlags).each(DISKS)(
  "open files: the mode durable is O_DSYNC, by %s",
  async (_, files) => {
    const durable = await files.open(join(directory, "durable"), "durable");
    const buffered = await files.open(join(directory, "buffered"), "buffered");
    expect(openFiles()).toEqual({ durable: true, buffered: false });
    await Promise.all([durable.close(), buffered.close()]);
  },
);

test.skipIf(!hasFlags)("open files: every segment of the log in use is O_DSYNC", async () => {
  const owner = { cluster: "c", node: "1" };
  const options = { files: nodeStorageFiles, directory, owner, segmentBytes: SEGMENT_BYTES };
  const payload = Buffer.alloc(SEGMENT_BYTES / 8);
  let { log } = await WriteAheadLog.open(options);
  const used = new Set<string>();
  const poll = () => {
    const segments = Object.entries(openFiles()).filter(([name]) => name.startsWith("wal-0"));
    expect(segments.map(([, isDurable]) => isDurable)).toEqual([true]);
    used.add(segments[0]?.[0] as string);
  };
  for (let index = 1; index <= 40; index++) {
    await log.append([{ kind: WAL_KINDS.entry, term: 1, index, payload }]);
    poll();
    if (index % 10 !== 0) continue;
    // Released segments are reused.
    await log.release(index - 5);
    await log.close();
    ({ log } = await WriteAheadLog.open(options));
    poll();
  }
  await log.close();
  expect(used.size).toBeGreaterThan(4);
});
