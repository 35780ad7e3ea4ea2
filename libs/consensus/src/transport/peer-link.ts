import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import type { Message } from "@heddle/raft/core/message";
import { FRAME_HEAD_BYTES, FRAME_KINDS, writeFrameHead } from "./frames.ts";
import { encodeMessage, messageBytes } from "./message-codec.ts";

/** Messages and bytes that may wait for one member; more are dropped. */
const MAX_QUEUED = 4_096;
const MAX_QUEUED_BYTES = 32 * 1024 * 1024;
/** Bytes of messages after which a frame gets no more. */
const MAX_FRAME_BYTES = 4 * 1024 * 1024;
/** How long news of the commit index alone waits for an append to travel with. */
const COMMIT_DELAY_MS = 3;

/** Frames of up to this size get memory that is used again; fresh memory costs more than what it holds. */
const MAX_REUSED_BYTES = 1024 * 1024;
const MIN_REUSED_BYTES = 64 * 1024;
/** Below it memory comes from the pool of small buffers. */
const SMALL_FRAME_BYTES = 2048;
const MAX_SPARE_FRAMES = 2;

/** The side of a connection that this master writes to. */
export interface FrameSink {
  /** `done` is called when the bytes of the frame are no longer needed. */
  write(frame: Buffer, done: () => void): boolean;
  once(event: "drain", listener: () => void): unknown;
  end(): unknown;
  destroy(): unknown;
}

/**
 * The queue of messages for one other member. Messages of one turn of the event loop form one frame.
 * - No frame is written while the connection has back-pressure.
 * - An append without entries carries only the commit index: it waits briefly for one with entries.
 * - Without a connection messages are dropped, as Raft allows.
 */
export class PeerLink {
  #sink: FrameSink | undefined;
  #queue: Queued[] = [];
  #spareFrames: Buffer[] = [];
  #queuedBytes = 0;
  readonly #nextFlush = new OncePerTurn(() => this.#flush(), queueMicrotask);
  #commitTimer: NodeJS.Timeout | undefined;
  #blocked = false;

  get connected(): boolean {
    return this.#sink !== undefined;
  }

  /** Takes a new connection into use; the one before is ended. */
  attach(sink: FrameSink): void {
    this.detach();
    this.#sink = sink;
    this.#blocked = false;
  }

  /** Forgets a connection that has ended, if it is the one in use; or whichever is. */
  detach(sink: FrameSink | undefined = this.#sink): void {
    if (!sink || this.#sink !== sink) return;
    this.#clear();
    sink.destroy();
  }

  /**
   * Sends the queue and ends the connection: a queued message may carry the member's own removal.
   */
  finish(): void {
    const sink = this.#sink;
    if (!sink) return;
    this.#flush();
    this.#clear();
    sink.end();
  }

  #clear(): void {
    this.#sink = undefined;
    this.#queue = [];
    this.#queuedBytes = 0;
    clearTimeout(this.#commitTimer);
    this.#commitTimer = undefined;
  }

  /** False if the messages were dropped. */
  send(messages: readonly Message[]): boolean {
    const added = messages.map((message) => ({ message, bytes: messageBytes(message) }));
    const bytes = added.reduce((sum, queued) => sum + queued.bytes, 0);
    const isFull =
      this.#queue.length + messages.length > MAX_QUEUED ||
      this.#queuedBytes + bytes > MAX_QUEUED_BYTES;
    if (!this.#sink || isFull) return false;
    for (const queued of added) this.#queue.push(queued);
    this.#queuedBytes += bytes;
    if (messages.every(hasCommitOnly)) this.#flushLater();
    else this.#nextFlush.request();
    return true;
  }

  #flushLater(): void {
    if (this.#nextFlush.isRequested) return;
    this.#commitTimer ??= setTimeout(() => {
      this.#commitTimer = undefined;
      this.#flush();
    }, COMMIT_DELAY_MS);
  }

  #flush(): void {
    const sink = this.#sink;
    clearTimeout(this.#commitTimer);
    this.#commitTimer = undefined;
    while (sink && this.#sink === sink && !this.#blocked && this.#queue.length > 0) {
      const frame = this.#nextFrame();
      if (sink.write(frame, () => this.#spare(frame))) continue;
      this.#blocked = true;
      sink.once("drain", () => {
        if (this.#sink !== sink) return;
        this.#blocked = false;
        this.#flush();
      });
    }
  }

  #nextFrame(): Buffer {
    let bytes = 0;
    let count = 0;
    while (count < this.#queue.length && bytes < MAX_FRAME_BYTES) {
      bytes += (this.#queue[count++] as Queued).bytes;
    }
    const batch = withoutOvertaken(this.#queue.splice(0, count));
    this.#queuedBytes -= bytes;
    const bodyBytes = batch.reduce((sum, queued) => sum + queued.bytes, 0);
    const frame = this.#memory(FRAME_HEAD_BYTES + bodyBytes);
    let at = writeFrameHead(frame, FRAME_KINDS.messages, bodyBytes);
    for (const { message } of batch) at = encodeMessage(message, frame, at);
    return frame;
  }

  #memory(bytes: number): Buffer {
    if (bytes <= SMALL_FRAME_BYTES || bytes > MAX_REUSED_BYTES) return Buffer.allocUnsafe(bytes);
    const spare = this.#spareFrames.pop();
    if (spare && spare.length >= bytes) return spare.subarray(0, bytes);
    const size = Math.max(MIN_REUSED_BYTES, 2 ** Math.ceil(Math.log2(bytes)));
    return Buffer.allocUnsafeSlow(size).subarray(0, bytes);
  }

  #spare(frame: Buffer): void {
    const { buffer } = frame;
    const isOwn = frame.length > SMALL_FRAME_BYTES && frame.length <= MAX_REUSED_BYTES;
    if (!isOwn || this.#spareFrames.length >= MAX_SPARE_FRAMES) return;
    this.#spareFrames.push(Buffer.from(buffer));
  }
}

interface Queued {
  readonly message: Message;
  /** In its encoded form. */
  readonly bytes: number;
}

function hasCommitOnly({ type, entries }: Message): boolean {
  return type === "MsgApp" && entries.length === 0;
}

/** Drops commit indexes that a later append of the batch carries too. */
function withoutOvertaken(batch: readonly Queued[]): readonly Queued[] {
  if (batch.length === 1) return batch;
  return batch.filter(({ message }, at) => {
    const next = batch[at + 1]?.message;
    if (!next || !hasCommitOnly(message) || next.type !== "MsgApp") return true;
    const { term, index, commit } = message;
    return next.term !== term || next.index < index || next.commit < commit;
  });
}
