// holds: task-modes

import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { GuardedModes } from "./guarded-modes.ts";

const modeOf = (path: string) => statSync(path).mode & 0o777;

test("modes: a secret path that is opened to other accounts is closed within a second", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-modes-"));
  const [data, key, late] = ["data", "key", "late"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(key, "secret", { mode: 0o640 });
  const faults: string[] = [];
  const modes = new GuardedModes((message) => faults.push(message));
  onTestFinished(() => {
    modes.stop();
    rmSync(folder, { recursive: true });
  });
  modes.add([data, key, late]);
  expect(faults).toEqual([`${key} has secrets and the mode 0640: chmod go= ${key}`]);
  chmodSync(data, 0o755);
  chmodSync(key, 0o644);
  await vi.waitFor(() => expect([modeOf(data), modeOf(key)]).toEqual([0o700, 0o640]), 100_000);
  expect(faults.slice(1)).toEqual([
    expect.stringContaining(`${data}, which has secrets, became 0755; it is 0700 again`),
    expect.stringContaining(`${key}, which has secrets, became 0644; it is 0640 again`),
  ]);
  // What opens nothing is the operator's own.
  chmodSync(key, 0o600);
  writeFileSync(late, "later", { mode: 0o600 });
  modes.add([late]);
  modes.check();
  expect([modeOf(key), modeOf(late)]).toEqual([0o600, 0o600]);
  expect(faults).toHaveLength(3);
});
