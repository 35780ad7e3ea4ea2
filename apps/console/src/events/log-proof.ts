import type { EventLogKeys } from "@heddle/contracts/api/events/log";
import { siblingSides } from "@heddle/event-store/merkle/sibling-sides";
import { parseCheckpoint } from "@heddle/event-store/notes/checkpoint";
import { ED25519, idText, parseKeyText } from "@heddle/event-store/notes/key-text";
import { isSameKey, type SignedNote } from "@heddle/event-store/notes/signed-note";
import { parseTlogProof } from "@heddle/event-store/notes/tlog-proof";

/** An event of the log as its proof is about it. */
export interface ProvedEntry {
  readonly sequence: string;
  readonly bytes: Uint8Array;
  /** C2SP tlog-proof. */
  readonly proof: string;
}

/** What a proof has shown. */
export interface Proved {
  /** Events that the signed checkpoint covers. */
  readonly size: number;
  /** The name and the id of the key that signed it. */
  readonly signer: string;
}

/** The first bytes of what is hashed, after RFC 6962, section 2.1. */
const [LEAF, NODE] = [0, 1];

/** Whether the browser can check proofs: it has cryptography only on HTTPS and on loopback. */
export function canProve(): boolean {
  return globalThis.crypto?.subtle !== undefined;
}

/** Checks in this process that the event is in the log that the keys sign. Rejects with what is wrong. */
export async function proveEntry(entry: ProvedEntry, keys: EventLogKeys): Promise<Proved> {
  const { index, hashes, checkpoint } = parseTlogProof(entry.proof);
  if (String(index) !== entry.sequence) throw new Error(`it is about event ${index}`);
  if (sequenceOf(entry.bytes) !== entry.sequence) throw new Error("the event has another number");
  const { origin, size, root } = parseCheckpoint(checkpoint.text);
  if (origin !== keys.origin) throw new Error(`its checkpoint is of the log ${origin}`);
  const signer = await signerOf(checkpoint, keys.keys);
  const sides = siblingSides(index, size);
  if (index >= size || sides.length !== hashes.length) throw new Error("it has a wrong length");
  let hash = await hashOf(LEAF, entry.bytes);
  for (const [at, sibling] of hashes.entries()) {
    const pair = sides[at] === "left" ? [sibling, hash] : [hash, sibling];
    hash = await hashOf(NODE, ...pair);
  }
  if (!isSame(hash, root)) throw new Error("the event is not the one that the checkpoint covers");
  return { size, signer };
}

/** The first of the log's keys by which the checkpoint is signed. */
async function signerOf(
  { text, signatures }: SignedNote,
  keys: readonly string[],
): Promise<string> {
  for (const key of keys.map(parseKeyText)) {
    const signed = signatures.find((signature) => isSameKey(signature, key));
    if (key.type !== ED25519 || !signed) continue;
    const { subtle } = crypto;
    const publicKey = await subtle.importKey("raw", key.material.subarray(1), "Ed25519", false, [
      "verify",
    ]);
    const signature = Uint8Array.from(signed.signature);
    const isValid = await subtle.verify("Ed25519", publicKey, signature, utf8(text));
    if (!isValid) throw new Error(`the signature of ${key.name} does not fit its checkpoint`);
    return `${key.name}+${idText(key.id)}`;
  }
  throw new Error("no key of the log has signed its checkpoint");
}

function sequenceOf(bytes: Uint8Array): string {
  const { sequence } = JSON.parse(new TextDecoder().decode(bytes)) as { sequence?: unknown };
  return String(sequence);
}

async function hashOf(prefix: number, ...parts: readonly Uint8Array[]): Promise<Uint8Array> {
  const bytes = new Blob([Uint8Array.of(prefix), ...parts.map((part) => Uint8Array.from(part))]);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", await bytes.arrayBuffer()));
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}
