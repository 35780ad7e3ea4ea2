import { generateKeyPairSync } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, describe, expect, it } from "vitest";
import { leafHash } from "../merkle/hash.ts";
import { isConsistent, isIncluded } from "../merkle/verify-proof.ts";
import { parseCheckpoint, verifyCheckpoint } from "../notes/checkpoint.ts";
import { noteSigner, parseVerifierKey } from "../notes/note-key.ts";
import { formatNote } from "../notes/signed-note.ts";
import { verifyTlogProof } from "../notes/verify-tlog-proof.ts";
import {
  entries,
  entryAt,
  LogDirectories,
  naiveRoot,
  ORIGIN,
  openLog,
  readAll,
  signer,
  texts,
  trust,
} from "./testing/sample-log.ts";

const directories = new LogDirectories();
afterAll(() => directories.close());

describe("checkpoints and retention", () => {
  it("sign: the checkpoint is of the entries on the disk, and is kept", async () => {
    const directory = directories.next();
    const { log } = await openLog(directory);
    await log.append(entries(0, 300));
    const note = await log.sign([signer]);
    expect(verifyCheckpoint(note, trust)).toMatchObject({ size: 300 });
    expect(Buffer.from(parseCheckpoint(note.text).root)).toEqual(Buffer.from(naiveRoot(300)));
    const rotated = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
    expect((await log.sign([rotated])).signatures).toHaveLength(2);
    await log.append(entries(300, 301));
    await log.sign([rotated]);
    await log.close();
    const { log: again } = await openLog(directory);
    expect(again.checkpointSizes).toEqual([300, 301]);
    const kept = await again.checkpointFrom(1);
    expect(kept?.signatures).toHaveLength(2);
    expect(verifyCheckpoint(kept!, trust).size).toBe(300);
    expect(() => verifyCheckpoint(again.checkpoint!, trust)).toThrow("no trusted key");
    await again.close();
  });

  it("cosign: only signatures of known witnesses are kept", async () => {
    const { log } = await openLog(directories.next());
    await log.append(entries(0, 2));
    const note = await log.sign([signer]);
    const seer = noteSigner("witness.example", generateKeyPairSync("ed25519").privateKey);
    const lines = (text: string) =>
      formatNote({ text, signatures: [{ ...seer, signature: seer.sign(text) }] }).split("\n\n")[1]!;
    const witnesses = [parseVerifierKey(seer.verifierKey)];
    await expect(log.cosign(2, lines("other\n"), witnesses)).rejects.toThrow("does not fit");
    await expect(log.cosign(2, lines(note.text), trust.keys)).rejects.toThrow("no trusted key");
    await expect(log.cosign(1, lines(note.text), witnesses)).rejects.toThrow("no checkpoint of 1");
    const unknown = lines(note.text).replace("witness.example", "unknown.example");
    await log.cosign(2, lines(note.text) + unknown, witnesses);
    expect(log.checkpoint?.signatures.map(({ name }) => name)).toEqual([ORIGIN, "witness.example"]);
    await log.close();
  });

  it("sign: a checkpoint takes no more signatures than a note may have", async () => {
    const directory = directories.next();
    const { log } = await openLog(directory);
    const signers = Array.from({ length: 100 }, () =>
      noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey),
    );
    await log.sign(signers);
    await expect(log.sign([signer])).rejects.toThrow("101 signatures; 100 are allowed");
    await log.close();
    const { log: again } = await openLog(directory);
    expect(again.checkpoint?.signatures).toHaveLength(100);
    await again.close();
  });

  it("prove: entries and prefixes are shown by proofs, once a checkpoint covers them", async () => {
    const { log } = await openLog(directories.next());
    await log.append(entries(0, 1_000));
    await expect(log.prove(0)).rejects.toThrow("no checkpoint covers event 0");
    await log.sign([signer]);
    for (const at of [0, 255, 256, 777, 999]) {
      expect(verifyTlogProof(await log.prove(at), entryAt(at), trust).size).toBe(1_000);
    }
    await expect(log.prove(1_000)).rejects.toThrow("no checkpoint covers");
    const proof = await log.proveConsistency(300, 1_000);
    const heads = [300, 1_000].map((size) => ({ size, root: naiveRoot(size) }));
    expect(isConsistent(heads[0]!, heads[1]!, proof)).toBe(true);
    await log.close();
  });

  // holds: events-retention
  it("prune: whole segments that a checkpoint covers go, and their proofs hold", async () => {
    const directory = directories.next();
    const { log } = await openLog(directory);
    await log.append(entries(0, 1_000));
    expect(await log.prune(1_000)).toBe(0);
    await log.sign([signer]);
    expect(await log.prune(600)).toBe(512);
    await expect(log.read(511)).rejects.toThrow("removed by retention; the first kept one is 512");
    expect(await readAll(log)).toEqual(texts(512, 1_000));
    expect(await log.prune(1_000)).toBe(768);
    await log.close();
    const { log: again } = await openLog(directory);
    expect([again.first, again.size]).toEqual([768, 1_000]);
    const proof = await again.prove(3);
    const head = parseCheckpoint(proof.checkpoint.text);
    expect(isIncluded(leafHash(entryAt(3)), 3, head, proof.hashes)).toBe(true);
    await again.append(entries(1_000, 1_300));
    expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(naiveRoot(1_300)));
    await again.close();
  });

  // holds: events-lost
  it("open: a checkpoint beyond the entries, or of other ones, is refused", async () => {
    const directory = directories.next();
    const { log } = await openLog(directory);
    await log.append(entries(0, 300));
    await log.sign([signer]);
    await log.append(entries(300, 600));
    await log.sign([signer]);
    await log.close();
    const last = join(directory, "events-0000000000000512.log");
    const file = await nodeStorageFiles.open(last, "buffered");
    await file.truncate(2_000);
    await file.close();
    await expect(openLog(directory)).rejects.toThrow(
      "its last checkpoint covers 600: events were lost",
    );
    const level = await nodeStorageFiles.open(join(directory, "level-1.hashes"), "buffered");
    await level.write(Buffer.alloc(32, 9), 0);
    await level.close();
    await rm(last);
    const { log: shorter } = await openLog(directories.next());
    await shorter.close();
    await expect(openLog(directory)).rejects.toThrow(/events were lost|were changed/);
  });
});
