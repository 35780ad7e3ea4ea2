import { committedIndex, type JointConfig } from "../tracker/quorum.ts";
import type { Message } from "./message.ts";

/** A read that waits for a quorum to confirm the leader. */
interface PendingRead {
  readonly request: Message;
  /** The commit index when the read arrived, which answers it. */
  readonly index: number;
}

/**
 * The reads of one leader in one term (Raft thesis, section 6.4). Reads are numbered from 1; a
 * heartbeat carries the number of the newest, and its answers confirm that one and all before. The
 * number is never used twice within a term and answers of other terms are ignored, so a request
 * that is sent again can never be confirmed by a round that began before it.
 */
export class ReadOnly {
  /** Reads #confirmed + 1, #confirmed + 2, ... in the order of arrival. */
  #unconfirmed: PendingRead[] = [];
  /** How many reads were confirmed; never goes back. */
  #confirmed = 0;
  /** The highest read number that each member has confirmed. */
  readonly #acks = new Map<number, number>();

  get size(): number {
    return this.#unconfirmed.length;
  }

  add(request: Message, index: number): void {
    this.#unconfirmed.push({ request, index });
  }

  /** What a heartbeat must carry now: the number of the newest read, or nothing. */
  heartbeatContext(): Uint8Array {
    if (this.#unconfirmed.length === 0) return new Uint8Array(0);
    const context = new DataView(new ArrayBuffer(8));
    context.setBigUint64(0, BigInt(this.#confirmed + this.#unconfirmed.length));
    return new Uint8Array(context.buffer);
  }

  /** Takes in the context that a member sent back; one that is no context is ignored. */
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
