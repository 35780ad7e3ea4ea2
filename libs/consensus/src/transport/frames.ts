import { once } from "node:events";
import type { Socket } from "node:net";
import { AppError } from "@heddle/base/errors";

/**
 * Frames on a connection between two masters: length u32 (little-endian, of the body), kind u8, body.
 * The first frame each way is `hello`; `refused` gives the reason before the end.
 */
export const FRAME_KINDS = {
  hello: 1,
  refused: 2,
  messages: 3,
  snapshotHead: 4,
  snapshotChunk: 5,
  snapshotEnd: 6,
  ping: 7,
} as const;
export type FrameKind = (typeof FRAME_KINDS)[keyof typeof FRAME_KINDS];

export interface Frame {
  readonly kind: number;
  readonly body: Buffer;
}

/** Length and kind. */
export const FRAME_HEAD_BYTES = 5;
/** What an unknown caller may make us keep before it has said who it is. */
const MAX_HELLO_BYTES = 4_096;
/** Above what a peer's queue may hold, so that any batch fits. */
export const MAX_FRAME_BYTES = 80 * 1024 * 1024;

const NOTHING = Buffer.alloc(0);

/** Writes the head of a frame at its beginning; returns where the body goes. */
export function writeFrameHead(frame: Buffer, kind: FrameKind, bodyBytes: number): number {
  frame.writeUInt32LE(bodyBytes);
  frame[4] = kind;
  return FRAME_HEAD_BYTES;
}

export function frameOf(kind: FrameKind, body: Uint8Array = NOTHING): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEAD_BYTES + body.byteLength);
  frame.set(body, writeFrameHead(frame, kind, body.byteLength));
  return frame;
}

/** Cuts a stream of bytes into frames, whatever the pieces in which it comes. */
export class FrameReader {
  /** Raised when the other side is known. */
  maxBytes = MAX_HELLO_BYTES;
  #pieces: Buffer[] = [];
  #bytes = 0;

  /** The frames that are complete by now; throws `invalid_value` where one is too long. */
  push(piece: Buffer): Frame[] {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
    const needed = this.#neededBytes();
    if (this.#bytes < needed) return [];
    const all = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces);
    const frames: Frame[] = [];
    let at = 0;
    while (all.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + this.#checked(all.readUInt32LE(at));
      if (end > all.length) break;
      // Copied, since entries stay in memory and must not keep the socket's whole buffer alive.
      const body = Buffer.allocUnsafeSlow(end - at - FRAME_HEAD_BYTES);
      all.copy(body, 0, at + FRAME_HEAD_BYTES, end);
      frames.push({ kind: all[at + 4] as number, body });
      at = end;
    }
    const rest = all.subarray(at);
    this.#pieces = rest.length > 0 ? [rest] : [];
    this.#bytes = rest.length;
    return frames;
  }

  /** The bytes to wait for before the next parse, so that a long frame is not parsed at each piece. */
  #neededBytes(): number {
    const [first] = this.#pieces;
    if (!first || first.length < FRAME_HEAD_BYTES) return FRAME_HEAD_BYTES;
    return FRAME_HEAD_BYTES + this.#checked(first.readUInt32LE(0));
  }

  #checked(length: number): number {
    if (length <= this.maxBytes) return length;
    throw new AppError(
      "invalid_value",
      `a frame of ${length} bytes was received from another master`,
    );
  }
}

/** Writes no faster than the other side reads. */
export async function writeFrame(socket: Socket, frame: Buffer): Promise<void> {
  if (socket.destroyed) throw new AppError("unavailable", "the other master closed the connection");
  if (!socket.write(frame)) await once(socket, "drain", { signal: closedSignal(socket) });
}

/** Aborts when the socket is closed, so that a wait for it ends. */
function closedSignal(socket: Socket): AbortSignal {
  const closed = new AbortController();
  socket.once("close", () => closed.abort());
  return closed.signal;
}
