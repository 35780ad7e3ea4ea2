// holds: state-versions

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import {
  BINDS_ROLES,
  HARDENED,
  KEEPS_SECRETS,
  LIMITED_TASKS,
  LIMITS_SUBJECTS,
  NEWEST_VERSION,
  PLAN_ENTRIES,
  RECORDS_EVENTS,
  SEALED,
  STANDARD_TERMS,
} from "./cluster-version.ts";
import { type LogCommand, ReplicatedControl } from "./replicated-control.ts";

/**
 * A log of one version and the expected results. `npm run golden:logs` wrote it; it never changes.
 */
interface GoldenLog {
  readonly entries: readonly LogCommand[];
  /** SHA-256 of the replies, one line of JSON each. */
  readonly replies: string;
  readonly hash: string;
  readonly snapshot: readonly string[];
}

function goldenLogs(version: number): GoldenLog[] {
  const file = new URL(`../testdata/logs-v${version}.jsonl.gz`, import.meta.url);
  const lines = gunzipSync(readFileSync(file)).toString().trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as GoldenLog);
}

/** A log entry and a catalog command of a future build. */
const UNKNOWN = [
  { type: "robot.join", atMs: 0 },
  { type: "control", command: { type: "robot.join", atMs: 0 } },
] as unknown as LogCommand[];

const raise = (version: number): LogCommand => ({ type: "version.raise", atMs: 0, version });

const GOLDEN = [
  1,
  HARDENED,
  SEALED,
  PLAN_ENTRIES,
  LIMITED_TASKS,
  STANDARD_TERMS,
  LIMITS_SUBJECTS,
  BINDS_ROLES,
  RECORDS_EVENTS,
  KEEPS_SECRETS,
];

test.each(GOLDEN)("golden logs: those of version %i replay to the same state", (version) => {
  const logs = goldenLogs(version);
  for (const [at, { entries, replies, hash, snapshot }] of logs.entries()) {
    const control = new ReplicatedControl();
    const digest = createHash("sha256");
    for (const [before, entry] of entries.entries()) {
      digest.update(`${JSON.stringify(control.apply(entry, before + 1))}\n`);
    }
    expect([...control.snapshot()], `log ${at}`).toEqual(snapshot);
    expect(control.hash, `log ${at}`).toBe(hash);
    expect(digest.digest("hex"), `log ${at}`).toBe(replies);
  }
  expect(logs.length).toBe(100);
});

test.each(GOLDEN)(
  "golden logs: snapshots of version %i restore to the same state",
  async (version) => {
    for (const { snapshot, hash } of goldenLogs(version)) {
      const control = new ReplicatedControl();
      await control.restore(snapshot);
      expect(control.hash).toBe(hash);
      expect(control.version).toBe(version);
    }
  },
);

test("golden logs: every earlier version has one", () => {
  expect(GOLDEN).toEqual(Array.from({ length: NEWEST_VERSION - 1 }, (_, before) => before + 1));
});

test("cluster version: a raise applies from the next entry on and is hashed", () => {
  const [raised, other] = [new ReplicatedControl(), new ReplicatedControl()];
  expect(raised.version).toBe(1);
  expect(raised.apply(raise(HARDENED), 1)).toEqual({ ok: true });
  other.apply(raise(1), 1);
  expect([raised.version, other.version]).toEqual([HARDENED, 1]);
  expect(raised.hash).not.toBe(other.hash);
});

test("cluster version: it never falls, and a malformed raise is refused", () => {
  const control = new ReplicatedControl();
  control.apply(raise(HARDENED), 1);
  expect(control.apply(raise(1), 2)).toEqual({ ok: true });
  expect(control.version).toBe(HARDENED);
  for (const bad of [0, -1, 1.5, Number.NaN, "2"]) {
    const reply = control.apply(raise(bad as number), 3);
    expect(reply, String(bad)).toMatchObject({ ok: false, code: "invalid_value" });
  }
  expect(control.version).toBe(HARDENED);
});

test("cluster version: a snapshot keeps it", async () => {
  const control = new ReplicatedControl();
  control.apply(raise(HARDENED), 1);
  const restored = new ReplicatedControl();
  await restored.restore(control.snapshot());
  expect([restored.version, restored.hash]).toEqual([HARDENED, control.hash]);
});

test("cluster version: a log of an unknown version is refused before any change", () => {
  const control = new ReplicatedControl();
  const before = control.hash;
  const next = NEWEST_VERSION + 1;
  const text = `log from entry 7 on has the cluster version ${next}.*Start this master with the build`;
  expect(() => control.apply(raise(next), 7)).toThrow(new RegExp(text));
  expect([control.hash, control.commands, control.index]).toEqual([before, 0, 0]);
});

test("cluster version: a snapshot of an unknown version is refused", async () => {
  const control = new ReplicatedControl();
  control.apply(raise(HARDENED), 1);
  const lines = [...control.snapshot()].map((line) =>
    line === `["cluster","version",${HARDENED}]` ? '["cluster","version",99]' : line,
  );
  const restored = new ReplicatedControl();
  await expect(restored.restore(lines)).rejects.toThrow(/the snapshot has the cluster version 99/);
  expect(restored.version).toBe(1);
});

const useKey = (id: string): LogCommand => ({ type: "secrets.key", atMs: 0, id });

test("secrets key: the state holds its id from version 3 on, and hashes it", async () => {
  const [key, next] = ["00112233aabbccdd", "ffeeddcc00112233"];
  const control = new ReplicatedControl();
  expect(control.apply(useKey(key), 1)).toMatchObject({ ok: false, code: "invalid_value" });
  control.apply(raise(SEALED), 2);
  const before = control.hash;
  expect(control.apply(useKey("no key"), 3)).toMatchObject({ ok: false, code: "invalid_value" });
  expect(control.secretsKey).toBeUndefined();
  expect(control.apply(useKey(key), 4)).toEqual({ ok: true });
  expect([control.secretsKey, control.hash === before]).toEqual([key, false]);
  control.apply(useKey(next), 5);
  const restored = new ReplicatedControl();
  await restored.restore(control.snapshot());
  expect([restored.secretsKey, restored.version]).toEqual([next, SEALED]);
});

test("secrets key: version 2 treats it as an unknown entry", () => {
  const control = new ReplicatedControl();
  control.apply(raise(HARDENED), 1);
  expect(() => control.apply(useKey("00112233aabbccdd"), 2)).toThrow(/does not know .*secrets.key/);
});

test("cluster version: an unknown entry stops the master from version 2 on", () => {
  for (const entry of UNKNOWN) {
    const control = new ReplicatedControl();
    expect(control.apply(entry, 1)).toMatchObject({ ok: false, code: "invalid_value" });
    control.apply(raise(HARDENED), 2);
    expect(() => control.apply(entry, 3)).toThrow(/does not know .*"robot.join"; update it/);
  }
});
