import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, describe, expect, it } from "vitest";
import {
  canCompile,
  compileFailingSync,
  ImageDisk,
  MemoryDisk,
  whyNot,
} from "../../../test/faults/disks.ts";
import { FAULT_TIMEOUT_MS, type FaultRun, startFaultRun } from "../../../test/faults/fault-run.ts";

// Masters whose disks are full, fail, or lose power, under a workload. Parts that this machine does
// not support are skipped with the reason.

const NAMES = ["master-1", "master-2", "master-3"];
const noMemoryDisk = skipReason(
  "a full disk",
  whyNot(() => new MemoryDisk(1)),
);
const noCompiler = skipReason("a disk that fails", whyNot(canCompile));
const noImageDisk = skipReason(
  "a power cut",
  whyNot(() => new ImageDisk(8)),
);

function skipReason(what: string, reason: string | undefined): string | undefined {
  if (reason) process.stdout.write(`${what}: skipped, ${reason}\n`);
  return reason;
}

let run: FaultRun | undefined;
const cleanUps: (() => void)[] = [];
afterEach(async () => {
  await run?.close();
  run = undefined;
  for (const cleanUp of cleanUps.splice(0).reverse()) cleanUp();
});

/** Writes some 100 kB to the log, so that it soon needs another segment. */
async function writeMuch({ group }: FaultRun, name: string): Promise<void> {
  const models = Array.from({ length: 500 }, (_, at) => `${at}`.padStart(200, "m"));
  await group.request(name, "POST", "/api/v1/keys", { name: "large", models });
}

/** A follower's disk takes seconds per write, then recovers: the reported lag must follow. */
async function seeBehind(
  { group }: FaultRun,
  setDisk: (name: string, how: "slow" | "well") => void,
): Promise<void> {
  const leader = await group.leader();
  const follower = NAMES.find((name) => name !== leader) as string;
  const isLabelled = async (name: string) => {
    const stale = await group.request(name, "GET", "/api/v1/cluster/settings");
    return stale.headers.get("x-may-be-stale") === "true";
  };
  const isMarked = async () => {
    const { masters } = await group.status(leader);
    return masters.some(({ id, behind }) => id === follower && behind === true);
  };
  setDisk(follower, "slow");
  await eventually(() => isLabelled(follower), "the follower labels what it shows");
  await eventually(isMarked, "the leader reports who lags");
  expect(await isLabelled(leader)).toBe(false);
  await eventually(async () => {
    const metrics = await group.request(follower, "GET", "/metrics");
    return /^heddle_raft_behind(\{[^}]*\})? 1$/m.test(await metrics.text());
  }, "the follower's figures say so");
  setDisk(follower, "well");
  await eventually(async () => !(await isLabelled(follower)), "no label is left");
  await eventually(async () => !(await isMarked()), "nor is the leader's mark");
}

describe("linearizable histories", { timeout: FAULT_TIMEOUT_MS }, () => {
  // holds: wal-io-errors
  it.skipIf(noMemoryDisk)(
    "full disk of the leader: it ends with a message, and returns with room",
    async () => {
      const disks = new Map(NAMES.map((name) => [name, new MemoryDisk(24)]));
      for (const disk of disks.values()) cleanUps.push(() => disk.close());
      const place = (name: string) => ({ directory: join(disks.get(name)?.path ?? "", "data") });
      run = await startFaultRun({ title: "full disk", place });
      const { group, workload } = run;
      await workload.progress(60);
      const leader = await group.leader();
      const other = NAMES.find((name) => name !== leader) as string;
      disks.get(leader)?.fill();
      const ended = group.ending(leader);
      for (let at = 0; at < 100 && group.url(leader); at++) await writeMuch(run, other);
      const { code, output } = await ended;
      expect(code).toBe(1);
      expect(output).toMatch(/"level":"fatal".*ENOSPC/);
      await workload.progress(60);
      disks.get(leader)?.makeRoom();
      await group.start(leader);
      await workload.progress(60);
      await run.finish();
    },
  );

  // holds: wal-io-errors, masters-slow-disk
  it.skipIf(noCompiler)(
    "hanging disk and failing sync: reads are labelled, the failing master ends",
    async () => {
      const folder = mkdtempSync(join(tmpdir(), "heddle-sync-"));
      cleanUps.push(() => rmSync(folder, { recursive: true }));
      const library = compileFailingSync(folder);
      const trigger = (name: string) => join(folder, name);
      const place = (name: string) => ({
        env: { LD_PRELOAD: library, HEDDLE_TEST_FAIL_FILE: trigger(name) },
      });
      run = await startFaultRun({ title: "failing sync", place });
      const { group, workload, pick } = run;
      await workload.progress(20);
      await seeBehind(run, (name, how) => {
        if (how === "slow") writeFileSync(trigger(name), "slow");
        else rmSync(trigger(name));
      });
      for (const _ of run.rounds(1)) {
        await workload.progress(60);
        const leader = await group.leader();
        const follower = pick(NAMES.filter((name) => name !== leader));
        const victim = pick([leader, follower]);
        const ended = group.ending(victim);
        writeFileSync(trigger(victim), "");
        const { code, output } = await ended;
        expect(code).toBe(1);
        expect(output.match(/"level":"fatal"/g)).toHaveLength(1);
        expect(output).toMatch(/"level":"fatal".*EIO/);
        await workload.progress(30);
        rmSync(trigger(victim));
        await group.start(victim);
      }
      await workload.progress(60);
      await run.finish();
    },
  );

  // holds: wal-power-cut
  it.skipIf(noImageDisk)("power cut of all masters: no acknowledged change is lost", async () => {
    const disk = new ImageDisk(96);
    cleanUps.push(() => disk.close());
    const place = (name: string) => ({ directory: join(disk.path, name) });
    run = await startFaultRun({ title: "power cut", place });
    const { group, workload, random } = run;
    for (const _ of run.rounds(1)) {
      await workload.progress(80 + Math.floor(random() * 80));
      const names = group.runningNames;
      for (const name of names) group.signal(name, "SIGSTOP");
      const image = await disk.copy();
      await Promise.all(names.map((name) => group.end(name, "SIGKILL")));
      disk.switchTo(image);
      await group.startAll();
    }
    await workload.progress(60);
    await run.finish();
  });
});
