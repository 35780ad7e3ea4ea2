import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import { AppError } from "@heddle/base/errors";
import { createMessage, type Message } from "@heddle/raft/core/message";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";
import type { OutgoingSnapshot } from "../ports.ts";
import type { MembershipState } from "../replica/membership.ts";
import { FRAME_KINDS, type Frame, frameOf, writeFrame } from "./frames.ts";
import { decodeMessages, encodeMessage, messageBytes } from "./message-codec.ts";

const DIGEST_BYTES = 32;

/** Writes a snapshot: its head (length u32, meta as JSON, the MsgSnap), its pieces, its end. */
export async function writeSnapshot(
  socket: Socket,
  { message, meta, chunks }: OutgoingSnapshot,
): Promise<void> {
  await writeFrame(socket, frameOf(FRAME_KINDS.snapshotHead, encodeHead(message, meta)));
  for await (const chunk of chunks) {
    const body = Buffer.concat([sha256(chunk), chunk]);
    await writeFrame(socket, frameOf(FRAME_KINDS.snapshotChunk, body));
  }
  await writeFrame(socket, frameOf(FRAME_KINDS.snapshotEnd));
}

/** The head of a snapshot that comes in; `cluster` is the one that the connection is for. */
export function decodeSnapshotHead(
  frame: Frame | undefined,
  cluster: string,
): { readonly message: Message; readonly meta: SnapshotMeta } {
  if (frame?.kind !== FRAME_KINDS.snapshotHead) {
    throw new AppError("invalid_value", "a snapshot's connection begins with its head");
  }
  const jsonEnd = 4 + frame.body.readUInt32LE(0);
  const head = JSON.parse(frame.body.toString("utf8", 4, jsonEnd)) as Omit<SnapshotMeta, "cluster">;
  const [message] = decodeMessages(frame.body.subarray(jsonEnd));
  if (!message) throw new AppError("invalid_value", "a snapshot's head has no message");
  const { index, term } = head;
  const { confState } = head.detail as MembershipState;
  const snapshot = { index, term, confState, data: new Uint8Array(0) };
  return {
    message: createMessage({ ...message, snapshot }),
    meta: { index, term, cluster, detail: head.detail },
  };
}

/** The pieces of a snapshot, each checked; throws where the connection ends before they do. */
export async function* snapshotChunks(
  frames: AsyncIterator<Frame>,
): AsyncGenerator<Uint8Array, void> {
  for (let next = await frames.next(); !next.done; next = await frames.next()) {
    const { kind, body } = next.value;
    if (kind === FRAME_KINDS.snapshotEnd) return;
    const data = body.subarray(DIGEST_BYTES);
    if (kind !== FRAME_KINDS.snapshotChunk || !sha256(data).equals(body.subarray(0, DIGEST_BYTES)))
      throw new AppError("invalid_value", "a piece of a snapshot does not match its checksum");
    yield data;
  }
  throw new AppError("unavailable", "the connection ended before the snapshot did");
}

function encodeHead(message: Message, { index, term, detail }: SnapshotMeta): Buffer {
  const json = Buffer.from(JSON.stringify({ index, term, detail }));
  const messageAt = 4 + json.length;
  const head = Buffer.alloc(messageAt + messageBytes(message));
  head.writeUInt32LE(json.length);
  head.set(json, 4);
  encodeMessage(message, head, messageAt);
  return head;
}

function sha256(data: Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
