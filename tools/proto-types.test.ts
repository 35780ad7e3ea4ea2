// holds: test-proto

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { generatedTypesFolder, writeProtoTypes } from "./proto-types.ts";

test("proto types: the committed ones match proto/*.proto (else `npm run proto`)", () => {
  const fresh = mkdtempSync(join(tmpdir(), "heddle-proto-"));
  try {
    writeProtoTypes(fresh);
    expect(textByPath(generatedTypesFolder)).toEqual(textByPath(fresh));
  } finally {
    rmSync(fresh, { recursive: true });
  }
});

function textByPath(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).sort();
  const files = names.filter((name) => name.endsWith(".ts"));
  return Object.fromEntries(files.map((name) => [name, readFileSync(join(folder, name), "utf8")]));
}
