import type { RaftFrame } from "@heddle/contracts/generated/heddle/v1/RaftFrame";
import type { Message } from "@heddle/raft/message";
import { encodeMessage } from "./raft-codec.ts";

/** Messages and bytes of entries that may wait for one member; more are dropped. */
const MAX_QUEUED = 4_096;
const MAX_QUEUED_BYTES = 32 * 1024 * 1024;
/** Messages in one frame. */
const MAX_BATCH = 256;

/** The side of a stream that this master writes to. */
export interface FrameSink {
  write(frame: RaftFrame): boolean;
  once(event: "drain", listener: () => void): unknown;
  end(): unknown;
}

/**
 * What goes to one other member: messages of one turn of the event loop leave in one frame, and
 * none leaves while the stream cannot take more. Without a stream they are dropped, as Raft expects
 * of a network.
 */
export class PeerLink {
  #sink: FrameSink | undefined;
  #queue: Message[] = [];
  #queuedBytes = 0;
  #flushQueued = false;
  #blocked = false;

  get connected(): boolean {
    return this.#sink !== undefined;
  }

  /** Takes a new stream into use; the one before is ended. */
  attach(sink: FrameSink): void {
    this.detach();
    this.#sink = sink;
    this.#blocked = false;
  }

  /** Forgets a stream that has ended, if it is the one in use; or whichever is. */
  detach(sink: FrameSink | undefined = this.#sink): void {
    if (!sink || this.#sink !== sink) return;
    this.#sink = undefined;
    this.#queue = [];
    this.#queuedBytes = 0;
    sink.end();
  }

  /** False if the messages were dropped. */
  send(messages: readonly Message[]): boolean {
    const bytes = messages.reduce((sum, message) => sum + messageBytes(message), 0);
    const isFull =
      this.#queue.length + messages.length > MAX_QUEUED ||
      this.#queuedBytes + bytes > MAX_QUEUED_BYTES;
    if (!this.#sink || isFull) return false;
    this.#queue.push(...messages);
    this.#queuedBytes += bytes;
    this.#queueFlush();
    return true;
  }

  #queueFlush(): void {
    if (this.#flushQueued) return;
    this.#flushQueued = true;
    setImmediate(() => {
      this.#flushQueued = false;
      this.#flush();
    });
  }

  #flush(): void {
    const sink = this.#sink;
    while (sink && this.#sink === sink && !this.#blocked && this.#queue.length > 0) {
      const batch = this.#queue.splice(0, MAX_BATCH);
      for (const message of batch) this.#queuedBytes -= messageBytes(message);
      if (sink.write({ batch: { messages: batch.map(encodeMessage) } })) continue;
      this.#blocked = true;
      sink.once("drain", () => {
        if (this.#sink !== sink) return;
        this.#blocked = false;
        this.#flush();
      });
    }
  }
}

function messageBytes({ entries, context }: Message): number {
  return entries.reduce((sum, { data }) => sum + data.byteLength, context.byteLength);
}
