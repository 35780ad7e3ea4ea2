import type { EventLogKeys } from "@heddle/contracts/api/events/log";
import { siblingSides } from "@heddle/event-store/merkle/sibling-sides";

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

const HEAD = "c2sp.org/tlog-proof@v1";
/** Of a signed note: an Ed25519 key. */
const ED25519 = 1;
const ID_BYTES = 4;
const MAX_HASHES = 64;
/** The first bytes of what is hashed, after RFC 6962, section 2.1. */
const [LEAF, NODE] = [0, 1];

/** Whether the browser can check proofs: it has cryptography only on HTTPS and on loopback. */
export function canProve(): boolean {
  return globalThis.crypto?.subtle !== undefined;
}

/** Checks in this process that the event is in the log that the keys sign. Rejects with what is wrong. */
export async function proveEntry(entry: ProvedEntry, keys: EventLogKeys): Promise<Proved> {
  const { index, hashes, note } = parseProof(entry.proof);
  if (String(index) !== entry.sequence) throw new Error(`it is about event ${index}`);
  if (sequenceOf(entry.bytes) !== entry.sequence) throw new Error("the event has another number");
  const { text, signatures } = parseNote(note);
  const { size, root } = checkpointOf(text, keys.origin);
  const signer = await signerOf(text, signatures, keys.keys);
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

function parseProof(proof: string) {
  const split = proof.indexOf("\n\n");
  const [head, ...lines] = proof.slice(0, Math.max(0, split)).split("\n");
  if (head !== HEAD) throw new Error("it is no proof");
  if (lines[0]?.startsWith("extra ")) lines.shift();
  const index = Number(/^index (0|[1-9]\d{0,15})$/.exec(lines.shift() ?? "")?.[1] ?? Number.NaN);
  if (!Number.isSafeInteger(index) || lines.length > MAX_HASHES) throw new Error("it is no proof");
  return { index, hashes: lines.map(bytesOf), note: proof.slice(split + 2) };
}

function parseNote(note: string) {
  const split = note.lastIndexOf("\n\n");
  if (split < 0) throw new Error("its checkpoint is not signed");
  const signatures = note
    .slice(split + 2)
    .split("\n")
    .map((line) => /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line))
    .flatMap((match) => (match ? { name: match[1] ?? "", bytes: bytesOf(match[2] ?? "") } : []));
  return { text: note.slice(0, split + 1), signatures };
}

function checkpointOf(text: string, origin: string) {
  const [named, size = "", root = ""] = text.split("\n");
  if (named !== origin) throw new Error(`its checkpoint is of the log ${named}`);
  if (!/^(0|[1-9]\d{0,15})$/.test(size)) throw new Error("its checkpoint has no size");
  return { size: Number(size), root: bytesOf(root) };
}

/** The first of the log's keys by which the checkpoint is signed. */
async function signerOf(
  text: string,
  signatures: readonly { readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }[],
  keys: readonly string[],
): Promise<string> {
  for (const key of keys) {
    const [, name, id = "", base64 = ""] = /^([^+]*)\+([0-9a-f]{8})\+(.+)$/.exec(key) ?? [];
    const material = bytesOf(base64);
    const signed = signatures.find((each) => each.name === name && idOf(each.bytes) === id);
    if (material[0] !== ED25519 || !signed) continue;
    const { subtle } = crypto;
    const publicKey = await subtle.importKey("raw", material.subarray(1), "Ed25519", false, [
      "verify",
    ]);
    const signature = signed.bytes.subarray(ID_BYTES);
    const isValid = await subtle.verify("Ed25519", publicKey, signature, utf8(text));
    if (!isValid) throw new Error(`the signature of ${name} does not fit its checkpoint`);
    return `${name}+${id}`;
  }
  throw new Error("no key of the log has signed its checkpoint");
}

function sequenceOf(bytes: Uint8Array): string {
  const { sequence } = JSON.parse(new TextDecoder().decode(bytes)) as { sequence?: unknown };
  return String(sequence);
}

function idOf(signature: Uint8Array): string {
  return [...signature.subarray(0, ID_BYTES)]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
}

async function hashOf(prefix: number, ...parts: readonly Uint8Array[]): Promise<Uint8Array> {
  const bytes = new Blob([Uint8Array.of(prefix), ...parts.map((part) => Uint8Array.from(part))]);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", await bytes.arrayBuffer()));
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}
