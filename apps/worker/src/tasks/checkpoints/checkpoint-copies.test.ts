// holds: artifacts-second-copy

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { DirectoryReplica } from "../../artifacts/directory-replica.ts";
import { CheckpointCopies } from "./checkpoint-copies.ts";
import { CheckpointLedger } from "./checkpoint-ledger.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-copies-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
});

/** A worker's directory of checkpoints, and its copies. */
function worker(name: string, maxBytes = 1_000) {
  const root = join(folder, name);
  const replica = new DirectoryReplica(join(folder, "shared"), 3_600_000);
  mkdirSync(join(root, "job_A"), { recursive: true });
  return { root, copies: new CheckpointCopies(root, replica, maxBytes) };
}

function write(root: string, files: Readonly<Record<string, string>>) {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(root, "job_A", path, ".."), { recursive: true });
    writeFileSync(join(root, "job_A", path), text);
  }
}

const read = (root: string, path: string) => readFileSync(join(root, "job_A", path), "utf8");

test("copies: a file, and a folder with parts of several ranks, are restored", async () => {
  const [first, second, third] = [worker("first"), worker("second"), worker("third")];
  write(first.root, { "steps/c1/rank0": "zero", "steps/c1/both": "b", "c2.bin": "file" });
  write(second.root, { "steps/c1/rank1": "one", "steps/c1/both": "b" });
  await first.copies.save("job_A", 0, "steps/c1/");
  await second.copies.save("job_A", 1, "steps/c1");
  await first.copies.save("job_A", 0, "c2.bin");
  await third.copies.restore("job_A", "steps/c1");
  await third.copies.restore("job_A", "c2.bin");
  await third.copies.restore("job_A", "none");
  expect(readdirSync(join(third.root, "job_A/steps/c1")).sort()).toEqual([
    "both",
    "rank0",
    "rank1",
  ]);
  expect([read(third.root, "steps/c1/rank1"), read(third.root, "c2.bin")]).toEqual(["one", "file"]);
  expect(readdirSync(third.root)).toEqual(["job_A"]);
  await first.copies.dropJob("job_A");
  const fourth = worker("fourth");
  await fourth.copies.restore("job_A", "c2.bin");
  expect(readdirSync(join(fourth.root, "job_A"))).toEqual([]);
});

test("copies: local files are not replaced, and paths outside are not touched", async () => {
  const [first, second] = [worker("first"), worker("second", 3)];
  write(first.root, { "latest/x": "1" });
  await first.copies.save("job_A", 0, "latest");
  write(first.root, { "latest/x": "22" });
  await first.copies.save("job_A", 0, "latest");
  await second.copies.restore("job_A", "latest");
  expect(read(second.root, "latest/x")).toBe("22");
  write(first.root, { "latest/x": "333" });
  await first.copies.save("job_A", 0, "latest");
  await second.copies.restore("job_A", "latest");
  expect(read(second.root, "latest/x")).toBe("22");
  for (const name of ["../other", "/etc/passwd", "."]) {
    await first.copies.save("job_A", 0, name);
    await second.copies.restore("job_A", name);
  }
  expect(readdirSync(folder).sort()).toEqual(["first", "second", "shared"]);
  write(second.root, { big: "4444" });
  await expect(second.copies.save("job_A", 0, "big")).rejects.toThrow(/4 bytes, and 3 are copied/);
});

test("copies: the latest is copied, then dropped ones are removed", async () => {
  const { root, copies } = worker("first");
  const ledger = new CheckpointLedger(root, { jobId: "job_A", rank: 0 }, 1, { copies });
  for (const name of ["c1", "c2", "c3"]) write(root, { [name]: name });
  await ledger.add(["c1"]);
  await ledger.copyLatest();
  await ledger.add(["c2"]);
  await ledger.add(["c3"]);
  await ledger.copyLatest();
  expect(readdirSync(join(folder, "shared/checkpoints/job_A"))).toHaveLength(1);
  const other = worker("other");
  const there = new CheckpointLedger(other.root, { jobId: "job_A", rank: 0 }, 1, other);
  for (const name of ["c1", "c2", "c3", ""]) await there.restore(name);
  expect(readdirSync(join(other.root, "job_A"))).toEqual(["c3"]);
});
