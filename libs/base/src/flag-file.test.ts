// holds: cli-file-flags

import { spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { readFlagFile, readFlagFileIfThere } from "./flag-file.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-flag-file-"));
const file = join(folder, "token");
writeFileSync(file, " text\n");
afterAll(() => rmSync(folder, { recursive: true }));

const read = (path: string) => readFlagFile("--token-file", path, "the file with the token");

it("flag file: its text is returned unchanged", () => {
  expect(read(file)).toBe(" text\n");
});

it.each([
  [folder, "is a directory"],
  [join(folder, "absent"), "does not exist"],
  [join(file, "below"), "does not exist: a part of the path is a file"],
])("flag file: %s is refused with the flag, the fault and the fix", (path, fault) => {
  const message = `--token-file ${path} ${fault}. Give the file with the token.`;
  expect(() => read(path)).toThrow(expect.objectContaining({ code: "invalid_value", message }));
});

it.skipIf(process.getuid?.() === 0)("flag file: one without read permission is refused", () => {
  const closed = join(folder, "closed");
  writeFileSync(closed, "text");
  chmodSync(closed, 0);
  expect(() => read(closed)).toThrow(/may not be read by this user/);
});

it("flag file: only a missing one is accepted where it is optional", () => {
  const read = (path: string) => readFlagFileIfThere("--token-file", path, "a file");
  expect(read(join(folder, "absent"))).toBeUndefined();
  expect(() => read(folder)).toThrow(/is a directory/);
});

it.skipIf(process.platform === "win32")("flag file: no pipe or device holds up a start", () => {
  const pipe = join(folder, "pipe");
  spawnSync("mkfifo", [pipe]);
  expect(() => read(pipe)).toThrow(`--token-file ${pipe} cannot be read (a pipe without a writer)`);
  expect(() => read("/dev/zero")).toThrow(/cannot be read \(more than 16 MiB\)/);
  expect(read("/dev/null")).toBe("");
});

it.skipIf(process.platform === "win32")("flag file: a pipe is read to its end", () => {
  const pipe = join(folder, "late");
  spawnSync("mkfifo", [pipe]);
  // Opened for reading too, so that the writer does not wait for the reader below.
  const script = `exec 3<>"${pipe}"; echo first >&3; echo ready; sleep 0.3; echo second >&3`;
  const writer = spawn("sh", ["-c", script], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise<void>((resolve, reject) => {
    writer.stdout.once("data", () => {
      try {
        expect(read(pipe)).toBe("first\nsecond\n");
        resolve();
      } catch (error) {
        reject(error);
      }
    });
  });
});
