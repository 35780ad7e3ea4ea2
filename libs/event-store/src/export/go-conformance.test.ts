import { createHash, generateKeyPairSync } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, describe, expect, it } from "vitest";
import { EventStore } from "../log/event-store.ts";
import { encodeBase64 } from "../notes/base64.ts";
import { noteSigner, parseVerifierKey } from "../notes/note-key.ts";
import { parseNote, verifyNote } from "../notes/signed-note.ts";
import { buildGoPeer, runGoPeer } from "./testing/go-peer.ts";
import { tileFiles } from "./tile-files.ts";

/** The only origin that Go's tlog package reads itself. */
const ORIGIN = "go.sum database tree";
const SIZE = 70_001;

const directory = mkdtempSync(join(tmpdir(), "heddle-go-peer-"));
afterAll(() => rmSync(directory, { recursive: true }));

describe("against Go's tlog and note packages", () => {
  // holds: events-go
  it("go: checkpoint, tiles, entries and proofs are accepted, and Go's are the same", async ({
    skip,
  }) => {
    const problem = buildGoPeer(directory);
    if (problem) {
      process.stdout.write(`skipped: the test against Go's tlog package: ${problem}\n`);
      skip(problem);
    }
    const key = generateKeyPairSync("ed25519").privateKey;
    const signer = noteSigner("log.example", key);
    const { log } = await EventStore.open({
      files: nodeStorageFiles,
      directory: join(directory, "log"),
      origin: ORIGIN,
    });
    const entries = Array.from({ length: SIZE }, (_, at) => Buffer.from(`event ${at}`));
    await log.append(entries);
    const checkpoint = await log.sign([signer]);
    const indexes = [0, 1, 255, 256, 65_535, 65_536, 69_999, SIZE - 1];
    const sizes = [1, 2, 255, 256, 257, 65_535, 65_536, 65_537, 70_000, SIZE];
    const inclusion: string[][] = [];
    for (const index of indexes) inclusion.push((await log.prove(index)).hashes.map(encodeBase64));
    const consistency: string[][] = [];
    const roots: string[] = [];
    for (const size of sizes) {
      consistency.push((await log.proveConsistency(size, SIZE)).map(encodeBase64));
      roots.push(encodeBase64(await log.tree(size).root()));
    }
    for await (const { path, bytes } of tileFiles(log, checkpoint)) {
      mkdirSync(dirname(join(directory, path)), { recursive: true });
      writeFileSync(join(directory, path), bytes);
    }
    await log.close();
    const found = runGoPeer(directory, {
      VerifierKey: signer.verifierKey,
      SignerKey: goSigner("peer.example", key.export({ format: "jwk" })),
      Indexes: indexes,
      Inclusion: inclusion,
      OldSizes: sizes,
      OldRoots: roots,
      Consistency: consistency,
    });
    expect(found).toMatchObject({ Origin: ORIGIN, Size: SIZE, Entries: SIZE });
    expect(found.Inclusion).toEqual(inclusion);
    expect(found.Consistency).toEqual(consistency);
    const peer = parseVerifierKey(noteSigner("peer.example", key).verifierKey);
    expect(verifyNote(parseNote(found.SignerNote), [peer])).toEqual([peer]);
  });
});

/** A private key in the form of Go's note package. */
function goSigner(name: string, { d = "", x = "" }: { d?: string; x?: string }): string {
  const material = Buffer.concat([Buffer.of(1), Buffer.from(x, "base64url")]);
  const digest = createHash("sha256").update(`${name}\n`).update(material).digest();
  const seed = Buffer.concat([Buffer.of(1), Buffer.from(d, "base64url")]);
  return `PRIVATE+KEY+${name}+${digest.subarray(0, 4).toString("hex")}+${encodeBase64(seed)}`;
}
