import { committedIndex, type JointConfig } from "../tracker/quorum.ts";
import type { Message } from "./message.ts";

/** A read that waits for a quorum to confirm the leader. */
interface PendingRead {
  readonly request: Message;
  /** The commit index when the read arrived, which answers it. */
  readonly index: number;
}

/**
 * The reads of one leader in one term (Raft thesis, section 6.4), numbered from 1. A heartbeat
 * carries the newest number, and its answers confirm all reads up to it.
 *
 * - A number is never reused within a term, and answers of other terms are ignored.
 * - So a repeated request is never confirmed by a round that began before it.
 */
export class ReadOnly {
  /** Reads #confirmed + 1, #confirmed + 2, ... in the order of arrival. */
  #unconfirmed: PendingRead[] = [];
  /** The number of confirmed reads; never decreases. */
  #confirmed = 0;
  /** The highest read number that each member has confirmed. */
  readonly #acks = new Map<number, number>();

  get size(): number {
    return this.#unconfirmed.length;
  }

  add(request: Message, index: number): void {
    this.#unconfirmed.push({ request, index });
  }

  /** The context of the next heartbeat: the number of the newest read, or nothing. */
  heartbeatContext(): Uint8Array {
    if (this.#unconfirmed.length === 0) return new Uint8Array(0);
    const context = new DataView(new ArrayBuffer(8));
    context.setBigUint64(0, BigInt(this.#confirmed + this.#unconfirmed.length));
    return new Uint8Array(context.buffer);
  }

  /** Records the context that a member sent back; one of another format is ignored. */
  receiveAck(from: number, context: Uint8Array): void {
    if (context.length !== 8) return;
    const view = new DataView(context.buffer, context.byteOffset, 8);
    const number = Number(view.getBigUint64(0));
    this.#acks.set(from, Math.max(this.#acks.get(from) ?? 0, number));
  }

  /** Removes and returns the reads that a quorum has confirmed by now. */
  takeConfirmed(voters: JointConfig): readonly PendingRead[] {
    const confirmed = committedIndex(voters, (id) => this.#acks.get(id));
    if (confirmed <= this.#confirmed) return [];
    const reads = this.#unconfirmed.splice(0, confirmed - this.#confirmed);
    this.#confirmed += reads.length;
    return reads;
  }
}
