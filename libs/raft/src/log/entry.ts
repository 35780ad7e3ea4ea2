/** The content of an entry: a command of the application, or a change of membership. */
type EntryType = "EntryNormal" | "EntryConfChange" | "EntryConfChangeV2";

/** One record of the replicated log; immutable. */
export interface Entry {
  readonly term: number;
  readonly index: number;
  readonly type: EntryType;
  /** The command, or an encoded conf change; empty for a new leader's first entry. */
  readonly data: Uint8Array;
  /**
   * Set on the empty entry that replaces a refused conf change: etcd encodes its type although it
   * is the default, and counts those bytes. Only the leader that refused it has the flag; it is
   * neither stored nor sent.
   */
  readonly hasExplicitType?: boolean | undefined;
}

/** An entry before the leader assigns its index and term. */
export type EntryPayload = Pick<Entry, "type" | "data" | "hasExplicitType">;

/**
 * The identity of an entry: two logs with a common entry share all entries before it (Log
 * Matching).
 */
export interface EntryId {
  readonly term: number;
  readonly index: number;
}

/** The empty byte array; shared, as it is immutable. */
export const NO_DATA: Uint8Array = new Uint8Array(0);

/** The bytes that an unsigned integer takes in the protobuf varint encoding. */
function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes++;
  return bytes;
}

/** The bytes of an entry in the protobuf wire format, by which messages and batches are limited. */
export function entryBytes(entry: Entry): number {
  const data = entry.data.length;
  const type = entry.type === "EntryNormal" && !entry.hasExplicitType ? 0 : 2;
  return (
    type +
    (1 + varintBytes(entry.term)) +
    (1 + varintBytes(entry.index)) +
    (data === 0 ? 0 : 1 + varintBytes(data) + data)
  );
}

/** The total of `entryBytes`. */
export function entriesBytes(entries: readonly Entry[]): number {
  let total = 0;
  for (const entry of entries) total += entryBytes(entry);
  return total;
}

/** The total of the data alone, by which uncommitted and in-flight bytes are limited. */
export function payloadBytes(entries: readonly EntryPayload[]): number {
  let total = 0;
  for (const entry of entries) total += entry.data.length;
  return total;
}

/** The longest prefix within the limit, but at least one entry if there is any. */
export function limitEntries(entries: readonly Entry[], maxBytes: number): readonly Entry[] {
  if (maxBytes === Number.POSITIVE_INFINITY) return entries;
  let total = 0;
  for (let count = 0; count < entries.length; count++) {
    total += entryBytes(entries[count] as Entry);
    if (count > 0 && total > maxBytes) return entries.slice(0, count);
  }
  return entries;
}
