// holds: events-cli

import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportLines } from "@heddle/event-store/export/export-lines";
import { EventStore } from "@heddle/event-store/log/event-store";
import { noteSigner } from "@heddle/event-store/notes/note-key";
import { formatNote } from "@heddle/event-store/notes/signed-note";
import { formatTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, beforeAll, expect, it } from "vitest";
import { runCaptured } from "../testing/captured-run.ts";

const ORIGIN = "log.example/events";
const signer = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const foreign = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);

let folder: string;
const file = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-verify-"));
  const { log } = await EventStore.open({
    files: nodeStorageFiles,
    directory: file("log"),
    origin: ORIGIN,
  });
  const entries = Array.from({ length: 300 }, (_, at) => Buffer.from(`event ${at}`));
  for (const at of [0, 150]) await log.append(entries.slice(at, at + 150));
  await writeFile(file("checkpoint"), formatNote(await log.sign([signer])));
  await writeFile(file("seven.tlog-proof"), formatTlogProof(await log.prove(7)));
  await writeFile(file("seven"), "event 7");
  const lines: string[] = [];
  for await (const line of exportLines(log, { first: 100, end: 200 })) lines.push(line);
  await writeFile(file("export"), lines.join(""));
  await writeFile(file("short"), lines.slice(0, -1).join(""));
  await log.close();
});
afterAll(() => rm(folder, { recursive: true }));

function verify(path: string, ...flags: readonly string[]) {
  const own = flags.includes("--key") ? [] : ["--key", signer.verifierKey];
  return runCaptured(["events", "verify", file(path), "--origin", ORIGIN, ...own, ...flags]);
}

it("events verify: an export, a directory and a proof are verified without a cluster", async () => {
  const known = ["--checkpoint", file("checkpoint")];
  const whole = await verify("export", ...known);
  expect(whole).toMatchObject({ code: 0, stderr: "" });
  expect(whole.stdout).toMatch(/FROM +TO +SIGNED +FAULTS\s+100 +199 +300 +0/);
  const directory = await verify("log", "-o", "json", ...known);
  expect(directory.code).toBe(0);
  expect(JSON.parse(directory.stdout)).toMatchObject({
    first: 0,
    end: 300,
    signed: 300,
    faults: [],
  });
  const proof = await verify("seven.tlog-proof", "--entry", file("seven"));
  expect(proof.stdout).toMatch(/7 +7 +300 +0/);
});

it("events verify: a fault is printed, and the exit code is 5", async () => {
  const short = await verify("short");
  expect(short).toMatchObject({
    code: 5,
    stderr: "truncated: the export ends with entry 198, not 199\n",
  });
  const wrongKey = await verify("log", "--key", foreign.verifierKey);
  expect(wrongKey.code).toBe(5);
  expect(wrongKey.stderr).toContain("key: no trusted key signed the note");
  const segment = file("log/events-0000000000000000.log");
  const bytes = await readFile(segment);
  bytes[bytes.indexOf("event 123")] = 69;
  await writeFile(segment, bytes);
  const changed = await verify("log");
  expect(changed.code).toBe(5);
  expect(changed.stderr).toContain("changed: ");
});

it.each([
  ["a missing file", "none", [], "cannot be read"],
  ["a proof without its entry", "seven.tlog-proof", [], "--entry FILE"],
  ["another entry", "seven.tlog-proof", ["--entry", "checkpoint"], "does not show the entry at 7"],
  ["an invalid key", "export", ["--key", "x"], "NAME+ID+BASE64"],
  ["a directory as checkpoint", "export", ["--checkpoint", "log"], "is no file"],
  ["no number", "export", ["--quorum", "x"], "give a whole number"],
])("events verify: %s is refused", async (_, path, flags, message) => {
  const named = flags.map((flag) => (["checkpoint", "log"].includes(flag) ? file(flag) : flag));
  const { code, stderr } = await verify(path, ...named);
  expect(code).not.toBe(0);
  expect(stderr).toContain(message);
});
