// holds: events-notes

import { createHash, createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TreeFrontier } from "../merkle/frontier.ts";
import { leafHash, nodeHash } from "../merkle/hash.ts";
import { decodeBase64, encodeBase64 } from "./base64.ts";
import { checkpointText, parseCheckpoint, verifyCheckpoint } from "./checkpoint.ts";
import { noteSigner, parseVerifierKey } from "./note-key.ts";
import {
  formatNote,
  parseNote,
  parseSignatures,
  type SignedNote,
  signNote,
  verifyNote,
  withSignatures,
} from "./signed-note.ts";
import { formatTlogProof, parseTlogProof } from "./tlog-proof.ts";
import { verifyTlogProof } from "./verify-tlog-proof.ts";

const newKey = () => generateKeyPairSync("ed25519").privateKey;
const signer = noteSigner("log.example/events", newKey());
const verifier = parseVerifierKey(signer.verifierKey);
const other = noteSigner("log.example/events", newKey());

/** A witness of C2SP tlog-cosignature, with its key for verifiers. */
function witness(name: string, timestamp: bigint) {
  const key = newKey();
  const { x = "" } = key.export({ format: "jwk" });
  const material = Buffer.concat([Buffer.of(4), Buffer.from(x, "base64url")]);
  const digest = createHash("sha256").update(`${name}\n`).update(material).digest();
  const id = digest.readUInt32BE();
  const verifierKey = `${name}+${digest.toString("hex", 0, 4)}+${encodeBase64(material)}`;
  const cosign = (text: string) => {
    const time = Buffer.alloc(8);
    time.writeBigUInt64BE(timestamp);
    const signed = Buffer.from(`cosignature/v1\ntime ${timestamp}\n${text}`);
    return { name, id, signature: Buffer.concat([time, sign(null, signed, key)]) };
  };
  return { verifier: parseVerifierKey(verifierKey), cosign };
}

describe("signed notes", () => {
  it("key: its id and text are those of Go's note package", () => {
    // From the example of golang.org/x/mod/sumdb/note.
    const seed = Buffer.from("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz", "base64").subarray(1);
    const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
    const peter = noteSigner(
      "PeterNeumann",
      createPrivateKey({ key: der, format: "der", type: "pkcs8" }),
    );
    const key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    expect(peter.verifierKey).toBe(key);
    const text =
      "If you think cryptography is the answer to your problem,\n" +
      "then you don't know what your problem is.\n";
    const note = formatNote(signNote(text, [peter]));
    expect(note).toBe(
      `${text}\n\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n`,
    );
    expect(verifyNote(parseNote(note), [parseVerifierKey(key)])).toHaveLength(1);
  });

  it.each([
    ["x", "has the form"],
    ["log+00000000+", "has the form"],
    ["log+0000000+AAAA", "has the form"],
    ["a b+00000000+AAAA", "cannot be named"],
    [`log+${"0".repeat(8)}+${encodeBase64(Buffer.alloc(33, 2))}`, "no Ed25519 key"],
    [`log+${"0".repeat(8)}+${encodeBase64(Buffer.alloc(33, 1))}`, "the id of the key log is"],
    [`${signer.verifierKey}=`, "has the form"],
  ])("key: %s is refused", (text, message) => {
    expect(() => parseVerifierKey(text)).toThrow(message);
  });

  it("note: any text survives signing, formatting and parsing", () => {
    const characters = fc.constantFrom("a", "\n", "\u2014", " ", "+", "é", "\u{1F600}", "\u2028");
    const texts = fc.array(characters).map((parts) => `${parts.join("")}\n`);
    fc.assert(
      fc.property(texts, fc.boolean(), (text, isBytes) => {
        const note = signNote(text, [signer, other]);
        const written = formatNote(note);
        const read = parseNote(isBytes ? Buffer.from(written) : written);
        expect(read.text).toBe(text);
        expect(formatNote(read)).toBe(written);
        expect(verifyNote(read, [verifier])).toEqual([verifier]);
      }),
    );
  });

  it("note: any changed character is detected", () => {
    const written = Buffer.from(formatNote(signNote("a text\n\nof lines\n", [signer])));
    for (let at = 0; at < written.byteLength; at++) {
      for (const bit of [1, 2, 32, 128]) {
        const changed = Buffer.from(written);
        changed[at] = changed[at]! ^ bit;
        expect(() => verifyNote(parseNote(changed), [verifier]), `byte ${at}`).toThrow();
      }
    }
  });

  it.each([
    ["no signatures", "text\n", "no empty line"],
    ["an empty list", "text\n\n", "does not end"],
    ["no newline at the end", formatNote(signNote("text\n", [signer])).trimEnd(), "does not end"],
    ["a control character", "te\txt\n\n\u2014 a AAAAAAA=\n", "control"],
    ["a return", "text\r\n\n\u2014 a AAAAAAA=\n", "control"],
    ["a short signature", "text\n\n\u2014 a AAAAAA==\n", "is no signature"],
    ["base64 with other last bits", "text\n\n\u2014 a AAAAAAB=\n", "is no signature"],
    ["a hyphen", "text\n\n- a AAAAAAA=\n", "is no signature"],
    ["a plus in a name", "text\n\n\u2014 a+b AAAAAAA=\n", "is no signature"],
    ["too many", `text\n\n${"\u2014 a AAAAAAA=\n".repeat(101)}`, "101 signatures"],
    ["too long", `${"x".repeat(1_000_001)}\n\n\u2014 a AAAAAAA=\n`, "longer"],
  ])("note: %s is refused", (_, note, message) => {
    expect(() => parseNote(note)).toThrow(message);
  });

  it("note: bytes that are no UTF-8 are refused, whatever they are", () => {
    expect(() => parseNote(Buffer.from([0xff, 10, 10]))).toThrow("UTF-8");
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => {
        expect(() => parseNote(bytes)).toThrow("malformed");
      }),
    );
  });

  it("note: signatures of unknown keys are kept and ignored, a wrong one is refused", () => {
    const note = signNote("text\n", [other, signer]);
    expect(verifyNote(note, [verifier])).toEqual([verifier]);
    expect(() => verifyNote(signNote("text\n", [other]), [verifier])).toThrow("no trusted key");
    const [stolen] = signNote("another\n", [signer]).signatures;
    const forged: SignedNote = { text: "text\n", signatures: [stolen!] };
    expect(() => verifyNote(forged, [verifier])).toThrow("does not fit the note");
    const both = withSignatures(note, parseSignatures(formatNote(forged).split("\n\n")[1]!));
    expect(both.signatures).toEqual(note.signatures);
  });
});

describe("checkpoints", () => {
  const origin = "log.example/events";
  const root = Uint8Array.from(leafHash(Buffer.from("x")));
  const checkpoint = { origin, size: 1, root, extensions: [] };
  const trust = { origin, keys: [verifier] };

  it("text: has the lines of the specification, and is read back", () => {
    const text = checkpointText({ ...checkpoint, size: 20_852_163, extensions: ["more"] });
    expect(text).toBe(`${origin}\n20852163\n${encodeBase64(root)}\nmore\n`);
    expect(parseCheckpoint(text)).toMatchObject({ size: 20_852_163, extensions: ["more"] });
    expect(decodeBase64("AA=")).toBeUndefined();
  });

  it.each([
    ["", "fewer than three"],
    ["o\n1\n", "fewer than three"],
    ["\n1\nh\n", "origin"],
    ["o\n01\nh\n", "no size"],
    ["o\n-1\nh\n", "no size"],
    ["o\n9007199254740992\nh\n", "no size"],
    ["o\n1\nAAAA\n", "no hash"],
    [`o\n1\n${encodeBase64(root)}`, "newline"],
    [`o\n1\n${encodeBase64(root)}\n\n`, "empty line"],
  ])("text: %j is refused", (text, message) => {
    expect(() => parseCheckpoint(text)).toThrow(message);
  });

  it("trust: another log's, an unknown key's or a witness's alone is refused", () => {
    const { verifier: seer, cosign } = witness("witness.example", 1_700_000_000n);
    const note = signNote(checkpointText(checkpoint), [signer]);
    expect(verifyCheckpoint(note, trust)).toEqual(checkpoint);
    expect(() => verifyCheckpoint(note, { ...trust, origin: "b" })).toThrow("not of b");
    expect(() => verifyCheckpoint(signNote(note.text, [other]), trust)).toThrow("no trusted key");
    const cosigned = withSignatures(note, [cosign(note.text)]);
    const keys = [verifier, seer];
    expect(verifyCheckpoint(cosigned, { origin, keys, quorum: 1 })).toEqual(checkpoint);
    expect(() => verifyCheckpoint(note, { origin, keys, quorum: 1 })).toThrow("0 witnesses");
    const alone = { text: note.text, signatures: [cosign(note.text)] };
    expect(() => verifyCheckpoint(alone, { origin, keys })).toThrow("0 keys of the log");
    const changed = cosign(note.text);
    changed.signature[7] = changed.signature[7]! ^ 1;
    expect(() => verifyCheckpoint(withSignatures(note, [changed]), { origin, keys })).toThrow(
      "does not fit the note",
    );
  });

  it("proof: its text is read back and shows its entry alone", () => {
    const entries = ["a", "b", "c"].map((text) => Buffer.from(text));
    const [a, b, c] = entries.map(leafHash) as [Uint8Array, Uint8Array, Uint8Array];
    const frontier = new TreeFrontier();
    for (const leaf of [a, b, c]) frontier.append(leaf);
    const note = signNote(checkpointText({ ...checkpoint, size: 3, root: frontier.root() }), [
      signer,
    ]);
    const extra = Buffer.from("more");
    const text = formatTlogProof({ extra, index: 1, hashes: [a, c], checkpoint: note });
    expect(text).toBe(
      `c2sp.org/tlog-proof@v1\nextra bW9yZQ==\nindex 1\n${encodeBase64(a)}\n${encodeBase64(c)}\n\n${formatNote(note)}`,
    );
    const proof = parseTlogProof(text);
    expect(formatTlogProof(proof)).toBe(text);
    expect(verifyTlogProof(proof, entries[1]!, trust).size).toBe(3);
    expect(() => verifyTlogProof(proof, entries[0]!, trust)).toThrow(
      "does not show the entry at 1",
    );
    expect(() => verifyTlogProof({ ...proof, index: 0 }, entries[1]!, trust)).toThrow(
      "does not show",
    );
    const last = { index: 2, hashes: [nodeHash(a, b)], checkpoint: note };
    expect(parseTlogProof(formatTlogProof(last)).extra).toBeUndefined();
    expect(verifyTlogProof(last, entries[2]!, trust).size).toBe(3);
  });

  it.each([
    ["", "first line"],
    ["c2sp.org/tlog-proof@v1\n\n", "index of the entry"],
    ["c2sp.org/tlog-proof@v1\nextra x\nindex 0\n\n", "extra data"],
    ["c2sp.org/tlog-proof@v1\nindex 00\n\n", "index of the entry"],
    ["c2sp.org/tlog-proof@v1\nindex 0\nAAAA\n\n", "no hash"],
    [`c2sp.org/tlog-proof@v1\nindex 0\n${"AAAA\n".repeat(65)}\n`, "65 hashes"],
    ["c2sp.org/tlog-proof@v1\nindex 0\n\n", "signed note is malformed"],
  ])("proof: %j is refused", (text, message) => {
    expect(() => parseTlogProof(text)).toThrow(message);
  });
});
