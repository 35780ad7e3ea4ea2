// holds: console-proof

import { generateKeyPairSync } from "node:crypto";
import { leafHash, nodeHash } from "@heddle/event-store/merkle/hash";
import { checkpointText } from "@heddle/event-store/notes/checkpoint";
import { noteSigner } from "@heddle/event-store/notes/note-key";
import { signNote } from "@heddle/event-store/notes/signed-note";
import { formatTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { expect, test } from "vitest";
import { proveEntry } from "./log-proof.ts";

const ORIGIN = "heddle/events/c1";
const signer = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const other = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const entry = (at: number) => Buffer.from(JSON.stringify({ sequence: String(at), type: "x" }));
const [a, b, c] = [0, 1, 2].map((at) => leafHash(entry(at))) as [Buffer, Buffer, Buffer];
const root = nodeHash(nodeHash(a, b), c);
const keysOf = (...keys: string[]) =>
  ({ object: "event_log_keys", origin: ORIGIN, keys, first: "0", size: "3" }) as const;

/** The proofs of a log of three events. */
function logged(
  at: number,
  text = checkpointText({ origin: ORIGIN, size: 3, root, extensions: [] }),
) {
  const hashes = [[b, c], [a, c], [nodeHash(a, b)]][at] ?? [];
  const proof = formatTlogProof({ index: at, hashes, checkpoint: signNote(text, [signer]) });
  return { sequence: String(at), bytes: new Uint8Array(entry(at)), proof };
}

test.each([0, 1, 2])("proof: event %i is shown to be in the signed log", async (at) => {
  const proved = await proveEntry(logged(at), keysOf(other.verifierKey, signer.verifierKey));
  expect(proved).toEqual({ size: 3, signer: expect.stringContaining(`${ORIGIN}+`) });
});

const otherLog = checkpointText({ origin: "other", size: 3, root, extensions: [] });
const FAULTS = [
  ["other bytes", { bytes: new Uint8Array(Buffer.from('{"sequence":"1","type":"y"}')) }, /covers/],
  ["another event", { bytes: new Uint8Array(entry(2)) }, /another number/],
  ["another place", { proof: logged(2).proof }, /about event 2/],
  ["a cut proof", { proof: logged(1).proof.replace(/index 1\n.*\n/, "index 1\n") }, /length/],
  ["another log", { proof: logged(1, otherLog).proof }, /of the log other/],
  ["no proof", { proof: "x" }, /proof is malformed/],
] as const;

test.each(FAULTS)("proof: %s is refused", async (_, changed, message) => {
  const keys = keysOf(signer.verifierKey);
  await expect(proveEntry({ ...logged(1), ...changed }, keys)).rejects.toThrow(message);
});

test("proof: a checkpoint that was changed, or that no key has signed, is refused", async () => {
  const { proof, ...rest } = logged(1);
  const larger = { ...rest, proof: proof.replace("\n3\n", "\n4\n") };
  await expect(proveEntry(larger, keysOf(signer.verifierKey))).rejects.toThrow("does not fit");
  const keys = keysOf(other.verifierKey);
  await expect(proveEntry(logged(1), keys)).rejects.toThrow("no key of the log has signed");
});
