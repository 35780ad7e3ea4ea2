import { createMessage, type Message, type MessageType } from "@heddle/raft/core/message";
import type { Entry } from "@heddle/raft/log/entry";

/** The kinds that cross the network; the place of each in the list is its number there. */
const MESSAGE_TYPES: readonly MessageType[] = [
  "MsgProp",
  "MsgApp",
  "MsgAppResp",
  "MsgVote",
  "MsgVoteResp",
  "MsgSnap",
  "MsgHeartbeat",
  "MsgHeartbeatResp",
  "MsgTransferLeader",
  "MsgTimeoutNow",
  "MsgReadIndex",
  "MsgReadIndexResp",
  "MsgPreVote",
  "MsgPreVoteResp",
];
const ENTRY_TYPES: readonly Entry["type"][] = [
  "EntryNormal",
  "EntryConfChange",
  "EntryConfChangeV2",
];
const TYPE_NUMBERS = new Map(MESSAGE_TYPES.map((type, number) => [type, number]));

const MESSAGE_HEAD_BYTES = 72;
const ENTRY_HEAD_BYTES = 24;

/**
 * Writes a message at `offset` and returns where it ends; messages follow each other.
 * Little-endian, integers as IEEE doubles (exact up to 2^53). A snapshot goes on a stream of its own.
 * - Message: type u8, reject u8, zero u16, entry count u32, context bytes u32, zero u32.
 * - Then to, from, term, logTerm, index, commit, rejectHint, the context and the entries.
 * - Entry: type u8, zero u24, data bytes u32, term, index, data.
 */
export function encodeMessage(message: Message, into: Buffer, offset: number): number {
  const type = TYPE_NUMBERS.get(message.type);
  if (type === undefined) throw new Error(`${message.type} must not leave its node`);
  const { entries, context } = message;
  into[offset] = type;
  into[offset + 1] = message.reject ? 1 : 0;
  into.writeUInt16LE(0, offset + 2);
  into.writeUInt32LE(entries.length, offset + 4);
  into.writeUInt32LE(context.byteLength, offset + 8);
  into.writeUInt32LE(0, offset + 12);
  into.writeDoubleLE(message.to, offset + 16);
  into.writeDoubleLE(message.from, offset + 24);
  into.writeDoubleLE(message.term, offset + 32);
  into.writeDoubleLE(message.logTerm, offset + 40);
  into.writeDoubleLE(message.index, offset + 48);
  into.writeDoubleLE(message.commit, offset + 56);
  into.writeDoubleLE(message.rejectHint, offset + 64);
  into.set(context, offset + MESSAGE_HEAD_BYTES);
  let at = offset + MESSAGE_HEAD_BYTES + context.byteLength;
  for (const { type: entryType, term, index, data } of entries) {
    into.writeUInt32LE(ENTRY_TYPES.indexOf(entryType), at);
    into.writeUInt32LE(data.byteLength, at + 4);
    into.writeDoubleLE(term, at + 8);
    into.writeDoubleLE(index, at + 16);
    into.set(data, at + ENTRY_HEAD_BYTES);
    at += ENTRY_HEAD_BYTES + data.byteLength;
  }
  return at;
}

/** The bytes that `encodeMessage` writes. */
export function messageBytes({ entries, context }: Message): number {
  let bytes = MESSAGE_HEAD_BYTES + context.byteLength;
  for (const { data } of entries) bytes += ENTRY_HEAD_BYTES + data.byteLength;
  return bytes;
}

/** The messages that `encodeMessage` wrote one after the other; throws a RangeError where the bytes are none. */
export function decodeMessages(bytes: Buffer): Message[] {
  const messages: Message[] = [];
  const reader = { bytes, at: 0 };
  while (reader.at < bytes.length) messages.push(decodeOne(reader));
  return messages;
}

interface Reader {
  readonly bytes: Buffer;
  at: number;
}

function decodeOne(reader: Reader): Message {
  const { bytes, at } = reader;
  const type = MESSAGE_TYPES[bytes.readUInt8(at)];
  if (type === undefined) throw new RangeError(`a message has the unknown type ${bytes[at]}`);
  const entryCount = bytes.readUInt32LE(at + 4);
  const to = bytes.readDoubleLE(at + 16);
  const from = bytes.readDoubleLE(at + 24);
  const term = bytes.readDoubleLE(at + 32);
  const logTerm = bytes.readDoubleLE(at + 40);
  const index = bytes.readDoubleLE(at + 48);
  const commit = bytes.readDoubleLE(at + 56);
  const rejectHint = bytes.readDoubleLE(at + 64);
  const reject = bytes[at + 1] === 1;
  reader.at = at + MESSAGE_HEAD_BYTES;
  const context = take(reader, bytes.readUInt32LE(at + 8));
  const entries: Entry[] = [];
  for (let i = 0; i < entryCount; i++) entries.push(decodeEntry(reader));
  return createMessage({
    type,
    to,
    from,
    term,
    logTerm,
    index,
    commit,
    rejectHint,
    reject,
    context,
    entries,
  });
}

function decodeEntry(reader: Reader): Entry {
  const { bytes, at } = reader;
  const type = ENTRY_TYPES[bytes.readUInt32LE(at)];
  if (type === undefined) throw new RangeError(`an entry has the unknown type ${bytes[at]}`);
  const length = bytes.readUInt32LE(at + 4);
  const term = bytes.readDoubleLE(at + 8);
  const index = bytes.readDoubleLE(at + 16);
  reader.at = at + ENTRY_HEAD_BYTES;
  return { type, term, index, data: take(reader, length) };
}

function take(reader: Reader, length: number): Uint8Array {
  const end = reader.at + length;
  if (end > reader.bytes.length) throw new RangeError("a message is longer than its frame");
  const part = reader.bytes.subarray(reader.at, end);
  reader.at = end;
  return part;
}
