import { invariant } from "../invariant.ts";
import type { Entry, EntryPayload } from "../log/entry.ts";
import { NO_DATA } from "../log/entry.ts";

/** The change of one node; `update` is for the application and changes nothing here. */
export type ConfChangeType = "addNode" | "removeNode" | "updateNode" | "addLearnerNode";

/**
 * The protocol of a change.
 *
 * - `auto` uses the simple protocol where that is safe, else joint consensus.
 * - `implicit` uses joint consensus, which the leader leaves automatically.
 * - `explicit` stays in the joint configuration until an empty change is proposed.
 */
export type ConfChangeTransition = "auto" | "implicit" | "explicit";

/** A step of a membership change; node id 0 marks a step that the application has cancelled. */
export interface ConfChangeSingle {
  readonly type: ConfChangeType;
  readonly nodeId: number;
}

/** A membership change; without steps and with transition `auto` it leaves a joint configuration. */
export interface ConfChange {
  readonly transition: ConfChangeTransition;
  readonly changes: readonly ConfChangeSingle[];
  /** Opaque bytes for the application. */
  readonly context: Uint8Array;
}

/**
 * The leader's proposal to leave a joint configuration: empty, so that no size limit refuses it.
 */
export const AUTO_LEAVE: EntryPayload = { type: "EntryConfChangeV2", data: NO_DATA };

/** True if the change leaves a joint configuration. */
export function leavesJoint(change: ConfChange): boolean {
  return change.transition === "auto" && change.changes.length === 0;
}

/**
 * Whether the change uses a joint configuration, and whether the leader leaves it automatically.
 */
export function jointMode(change: ConfChange): "simple" | "joint" | "jointAutoLeave" {
  if (change.transition === "auto" && change.changes.length <= 1) return "simple";
  return change.transition === "explicit" ? "joint" : "jointAutoLeave";
}

/** A type's position is its number in the wire format. */
const TYPES: readonly ConfChangeType[] = ["addNode", "removeNode", "updateNode", "addLearnerNode"];
const TRANSITIONS: readonly ConfChangeTransition[] = ["auto", "implicit", "explicit"];

/**
 * The change as log payload, in the protobuf encoding of etcd's raftpb. That is `raftpb.ConfChange`
 * (version 1, one step, no transition) or, with more, its second version.
 */
export function encodeConfChange(change: ConfChange, version: 1 | 2 = 2): EntryPayload {
  if (version === 1) return encodeV1(change);
  const bytes: number[] = [];
  putVarintField(bytes, 1, TRANSITIONS.indexOf(change.transition));
  for (const single of change.changes) {
    const inner: number[] = [];
    putVarintField(inner, 1, TYPES.indexOf(single.type));
    putVarintField(inner, 2, single.nodeId);
    putBytesField(bytes, 2, inner);
  }
  if (change.context.length > 0) putBytesField(bytes, 3, change.context);
  return { type: "EntryConfChangeV2", data: Uint8Array.from(bytes) };
}

function encodeV1(change: ConfChange): EntryPayload {
  const [single, ...rest] = change.changes;
  invariant(
    single !== undefined && rest.length === 0 && change.transition === "auto",
    () => "a version 1 conf change has one step and no transition",
  );
  const bytes: number[] = [];
  putVarintField(bytes, 2, TYPES.indexOf(single.type));
  putVarintField(bytes, 3, single.nodeId);
  if (change.context.length > 0) putBytesField(bytes, 4, change.context);
  return { type: "EntryConfChange", data: Uint8Array.from(bytes) };
}

/** The change in an entry, or undefined for a normal entry; throws on bytes of another format. */
export function decodeConfChange(entry: Pick<Entry, "type" | "data">): ConfChange | undefined {
  if (entry.type === "EntryNormal") return undefined;
  const fields = readFields(entry.data);
  if (entry.type === "EntryConfChange") {
    const single = { type: typeOf(fields, 2), nodeId: numberOf(fields, 3) };
    return { transition: "auto", changes: [single], context: bytesOf(fields, 4) };
  }
  const changes = fields
    .filter((field) => field.number === 2)
    .map(({ bytes }) => {
      const inner = readFields(bytes);
      return { type: typeOf(inner, 1), nodeId: numberOf(inner, 2) };
    });
  const transition = TRANSITIONS[numberOf(fields, 1)];
  invariant(transition !== undefined, () => `unknown transition ${numberOf(fields, 1)}`);
  return { transition, changes, context: bytesOf(fields, 3) };
}

function putVarint(bytes: number[], value: number): void {
  let rest = value;
  while (rest >= 128) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
}

function putVarintField(bytes: number[], field: number, value: number): void {
  bytes.push(field * 8);
  putVarint(bytes, value);
}

function putBytesField(bytes: number[], field: number, value: ArrayLike<number>): void {
  bytes.push(field * 8 + 2);
  putVarint(bytes, value.length);
  for (let i = 0; i < value.length; i++) bytes.push(value[i] as number);
}

/** One field of a message: `value` for a varint, `bytes` for a length-delimited one. */
interface Field {
  readonly number: number;
  readonly value: number;
  readonly bytes: Uint8Array;
}

function readFields(data: Uint8Array): Field[] {
  const fields: Field[] = [];
  let position = 0;
  const varint = (): number => {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = data[position++];
      invariant(byte !== undefined, () => "a conf change ends in the middle of a number");
      value += (byte % 128) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
  while (position < data.length) {
    const tag = varint();
    invariant(tag % 8 === 0 || tag % 8 === 2, () => `unknown wire type in conf change tag ${tag}`);
    const value = varint();
    const end = tag % 8 === 2 ? position + value : position;
    invariant(end <= data.length, () => "a conf change ends in the middle of a field");
    fields.push({ number: Math.floor(tag / 8), value, bytes: data.slice(position, end) });
    position = end;
  }
  return fields;
}

function find(fields: readonly Field[], number: number): Field | undefined {
  return fields.findLast((field) => field.number === number);
}

function numberOf(fields: readonly Field[], number: number): number {
  return find(fields, number)?.value ?? 0;
}

function bytesOf(fields: readonly Field[], number: number): Uint8Array {
  return find(fields, number)?.bytes ?? NO_DATA;
}

function typeOf(fields: readonly Field[], number: number): ConfChangeType {
  const type = TYPES[numberOf(fields, number)];
  invariant(type !== undefined, () => `unknown conf change type ${numberOf(fields, number)}`);
  return type;
}
