/** One request of a client: `put` with a value, or a linearizable read. */
export interface KvRequest {
  readonly id: number;
  readonly op: "put" | "read";
  readonly key: string;
  readonly value: Uint8Array;
}

/** The answer to the request of that id; `error` where it was refused. */
export interface KvReply {
  readonly id: number;
  readonly error: string | undefined;
  readonly value: Uint8Array;
}

const NO_BYTES = new Uint8Array(0);

/** A frame of the benchmark's stream: all requests of one turn. id u32, op u8, two byte strings. */
export function encodeRequests(requests: readonly KvRequest[]): Buffer {
  return encodeFrame(
    requests.map(({ id, op, key, value }) => ({
      id,
      tag: op === "put" ? 1 : 2,
      parts: [Buffer.from(key), value],
    })),
  );
}

export function decodeRequests(frame: Buffer): KvRequest[] {
  return decodeFrame(frame).map(({ id, tag, parts: [key, value] }) => ({
    id,
    op: tag === 1 ? "put" : "read",
    key: Buffer.from(key ?? NO_BYTES).toString("latin1"),
    value: value ?? NO_BYTES,
  }));
}

export function encodeReplies(replies: readonly KvReply[]): Buffer {
  return encodeFrame(
    replies.map(({ id, error, value }) => ({
      id,
      tag: error === undefined ? 0 : 1,
      parts: [error === undefined ? value : Buffer.from(error), NO_BYTES],
    })),
  );
}

export function decodeReplies(frame: Buffer): KvReply[] {
  return decodeFrame(frame).map(({ id, tag, parts: [value = NO_BYTES] }) => {
    const error = tag === 0 ? undefined : Buffer.from(value).toString();
    return { id, error, value };
  });
}

interface Item {
  readonly id: number;
  readonly tag: number;
  readonly parts: readonly Uint8Array[];
}

const ITEM_HEADER_BYTES = 13;

function encodeFrame(items: readonly Item[]): Buffer {
  let size = 0;
  for (const { parts } of items) {
    size += ITEM_HEADER_BYTES;
    for (const part of parts) size += part.byteLength;
  }
  const frame = Buffer.allocUnsafe(size);
  let at = 0;
  for (const { id, tag, parts } of items) {
    at = frame.writeUInt32LE(id, at);
    at = frame.writeUInt8(tag, at);
    for (const part of parts) {
      at = frame.writeUInt32LE(part.byteLength, at);
      frame.set(part, at);
      at += part.byteLength;
    }
  }
  return frame;
}

function decodeFrame(frame: Buffer): Item[] {
  const items: Item[] = [];
  for (let at = 0; at < frame.length; ) {
    const id = frame.readUInt32LE(at);
    const tag = frame.readUInt8(at + 4);
    at += 5;
    const parts: Uint8Array[] = [];
    for (let part = 0; part < 2; part++) {
      const length = frame.readUInt32LE(at);
      parts.push(frame.subarray(at + 4, at + 4 + length));
      at += 4 + length;
    }
    items.push({ id, tag, parts });
  }
  return items;
}
