import type { Message } from "@heddle/raft/message";
import { emptyFrame, FRAME_KINDS } from "./frames.ts";
import { encodedBytes, encodeMessages } from "./message-codec.ts";

/** Messages and bytes that may wait for one member; more are dropped. */
const MAX_QUEUED = 4_096;
const MAX_QUEUED_BYTES = 32 * 1024 * 1024;
/** Bytes of messages after which a frame gets no more. */
const MAX_FRAME_BYTES = 4 * 1024 * 1024;
/** How long news of the commit index alone waits for an append to travel with. */
const COMMIT_DELAY_MS = 3;

/** The side of a connection that this master writes to. */
export interface FrameSink {
  write(frame: Buffer): boolean;
  once(event: "drain", listener: () => void): unknown;
  end(): unknown;
  destroy(): unknown;
}

/**
 * What goes to one other member: messages of one turn of the event loop leave in one frame, and
 * none leaves while the connection cannot take more. An append without entries, which tells no more
 * than the commit index, waits a little, and is dropped if an append with entries comes meanwhile.
 * Without a connection messages are dropped, as Raft expects of a network.
 */
export class PeerLink {
  #sink: FrameSink | undefined;
  #queue: Message[] = [];
  #queuedBytes = 0;
  #flushQueued = false;
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

  /** Sends what waits, and ends the connection: what waits may tell the member that it is removed. */
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
    const bytes = encodedBytes(messages);
    const isFull =
      this.#queue.length + messages.length > MAX_QUEUED ||
      this.#queuedBytes + bytes > MAX_QUEUED_BYTES;
    if (!this.#sink || isFull) return false;
    for (const message of messages) this.#queue.push(message);
    this.#queuedBytes += bytes;
    if (messages.every(tellsCommitOnly)) this.#flushLater();
    else this.#flushSoon();
    return true;
  }

  #flushLater(): void {
    if (this.#flushQueued) return;
    this.#commitTimer ??= setTimeout(() => {
      this.#commitTimer = undefined;
      this.#flush();
    }, COMMIT_DELAY_MS);
  }

  #flushSoon(): void {
    if (this.#flushQueued) return;
    this.#flushQueued = true;
    queueMicrotask(() => {
      this.#flushQueued = false;
      this.#flush();
    });
  }

  #flush(): void {
    const sink = this.#sink;
    clearTimeout(this.#commitTimer);
    this.#commitTimer = undefined;
    while (sink && this.#sink === sink && !this.#blocked && this.#queue.length > 0) {
      if (sink.write(this.#nextFrame())) continue;
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
      bytes += encodedBytes([this.#queue[count++] as Message]);
    }
    const batch = withoutOvertaken(this.#queue.splice(0, count));
    this.#queuedBytes -= bytes;
    const { frame, bodyAt } = emptyFrame(FRAME_KINDS.messages, encodedBytes(batch));
    encodeMessages(batch, frame, bodyAt);
    return frame;
  }
}

function tellsCommitOnly({ type, entries }: Message): boolean {
  return type === "MsgApp" && entries.length === 0;
}

/** Drops what a later append of the batch tells too. */
function withoutOvertaken(batch: readonly Message[]): readonly Message[] {
  if (batch.length === 1) return batch;
  return batch.filter((message, at) => {
    const next = batch[at + 1];
    if (!next || !tellsCommitOnly(message) || next.type !== "MsgApp") return true;
    const { term, index, commit } = message;
    return next.term !== term || next.index < index || next.commit < commit;
  });
}
