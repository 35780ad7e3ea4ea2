import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
} from "node:crypto";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import type { SealMembers, SealRole } from "@heddle/control/audit/cloud-event";

// Personal members of an event, encrypted by AES-256-GCM under the key of their subject. Every master
// must write the same bytes, so the nonce is the event's place, which no other event of the log has.

/** Part of the nonce, as an event can have members of both under one key. */
const ROLES: readonly SealRole[] = ["caller", "actor"];

/** The place of an event in a log. */
interface SealPlace {
  readonly sequence: number;
  /** The name of the log: a restored cluster numbers its events from 0 again. */
  readonly origin: string;
}

const TAG_BYTES = 16;
const NONCE_BYTES = 12;
const UTF8 = 0;
const UTF16 = 1;

/**
 * Encrypts the members of some events of a log, by the sequence of each, into base64. A key is derived
 * once, and forgotten with the function.
 */
export function sealerOf(origin: string): (sequence: number) => SealMembers {
  const keys = new Map<string, KeyObject>();
  return (sequence) => (members, role, key) => {
    const place = { sequence, origin };
    const derived = keys.get(key) ?? keyOf(key, place);
    keys.set(key, derived);
    const cipher = createCipheriv("aes-256-gcm", derived, nonceOf(role, place));
    const sealed = cipher.update(encoded(JSON.stringify(members)));
    // It gives no more bytes, as this is a stream cipher.
    cipher.final();
    return Buffer.concat([sealed, cipher.getAuthTag()]).toString("base64");
  };
}

/** Undefined where the key is another one, or the bytes were changed. */
function openMembers(
  data: string,
  role: SealRole,
  place: SealPlace,
  key: string,
): Readonly<Record<string, unknown>> | undefined {
  const bytes = Buffer.from(data, "base64");
  const decipher = createDecipheriv("aes-256-gcm", keyOf(key, place), nonceOf(role, place));
  try {
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    const parts = [decipher.update(bytes.subarray(0, -TAG_BYTES)), decipher.final()];
    return JSON.parse(decoded(Buffer.concat(parts))) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** The shorter of two encodings, so that the largest data fit into an entry. */
function encoded(text: string): Buffer {
  const [narrow, wide] = [Buffer.byteLength(text), 2 * text.length];
  const isWide = narrow > wide;
  const bytes = Buffer.allocUnsafe(1 + Math.min(narrow, wide));
  bytes[0] = isWide ? UTF16 : UTF8;
  bytes.write(text, 1, isWide ? "utf16le" : "utf8");
  return bytes;
}

function decoded(bytes: Buffer): string {
  return bytes.subarray(1).toString(bytes[0] === UTF16 ? "utf16le" : "utf8");
}

function nonceOf(role: SealRole, { sequence }: SealPlace): Buffer {
  const nonce = Buffer.allocUnsafe(NONCE_BYTES).fill(0);
  nonce.writeUInt32BE(Math.floor(sequence / 2 ** 32));
  nonce.writeUInt32BE(sequence % 2 ** 32, 4);
  nonce[8] = ROLES.indexOf(role);
  return nonce;
}

/** Each log has its own key, since nonces repeat in others. Node is slower with keys as bytes. */
function keyOf(key: string, { origin }: SealPlace): KeyObject {
  const secret = createSecretKey(key, "base64");
  return createSecretKey(createHmac("sha256", secret).update(origin).digest());
}

/** An event as its readers see it. Personal data whose key is gone are absent. */
export function openedEvent(
  event: LogEvent & SealedEvent,
  place: SealPlace,
  keyOf: (id: string) => string | undefined,
): LogEvent {
  const { callerkey, callerdata, actorkey, actordata, ...plain } = event;
  if (callerkey === undefined && actorkey === undefined) return event;
  const sealed = { caller: [callerkey, callerdata], actor: [actorkey, actordata] } as const;
  const shredded: string[] = [];
  let opened: LogEvent = plain;
  for (const role of ROLES) {
    const [id, data] = sealed[role];
    if (id === undefined) continue;
    const key = keyOf(id);
    const members = key && data !== undefined && openMembers(data, role, place, key);
    if (members) opened = { ...opened, ...members };
    else shredded.push(role);
  }
  return shredded.length === 0 ? opened : { ...opened, shredded: shredded.join(",") };
}

/** The members of an event whose personal data are encrypted. */
interface SealedEvent {
  readonly callerkey?: string | undefined;
  readonly callerdata?: string | undefined;
  readonly actorkey?: string | undefined;
  readonly actordata?: string | undefined;
}
