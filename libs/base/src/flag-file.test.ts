// holds: cli-file-flags

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
  const look = (path: string) => readFlagFileIfThere("--token-file", path, "a file");
  expect(look(join(folder, "absent"))).toBeUndefined();
  expect(() => look(folder)).toThrow(/is a directory/);
});
