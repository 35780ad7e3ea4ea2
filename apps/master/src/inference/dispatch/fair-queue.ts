/** A queued call, as far as its order depends on it. */
export interface QueueTicket {
  /** Keys take turns; within a key the order is that of arrival. */
  readonly fairKey: string;
  /** Higher goes first, whatever its key. */
  readonly priority: number;
}

/** A bounded queue: by priority, then keys in turn, then FIFO. */
export class FairQueue<T extends QueueTicket> {
  readonly capacity: number;
  /** By priority; the keys of a lane are in the order of their next turns. */
  readonly #lanes = new Map<number, Map<string, T[]>>();
  #size = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  get size(): number {
    return this.#size;
  }

  /** False, without effect, if the queue is full. */
  push(ticket: T): boolean {
    if (this.#size >= this.capacity) return false;
    let lane = this.#lanes.get(ticket.priority);
    if (!lane) {
      lane = new Map();
      this.#lanes.set(ticket.priority, lane);
    }
    const waiting = lane.get(ticket.fairKey);
    if (waiting) waiting.push(ticket);
    else lane.set(ticket.fairKey, [ticket]);
    this.#size += 1;
    return true;
  }

  /** The next ticket; it stays in the queue. */
  peek(): T | undefined {
    const lane = this.#lanes.get(Math.max(...this.#lanes.keys()));
    return lane?.values().next().value?.[0];
  }

  /** The first ticket of each key of the highest priority, in turn. */
  heads(): T[] {
    const lane = this.#lanes.get(Math.max(...this.#lanes.keys()));
    return [...(lane?.values() ?? [])].flatMap((waiting) => waiting.slice(0, 1));
  }

  /**
   * The victim for a ticket of another key: the last ticket of the key with the most tickets at the
   * lowest priority. None if the new ticket's key would then have as many.
   */
  crowding(fairKey: string, priority: number): T | undefined {
    const least = Math.min(...this.#lanes.keys());
    if (least > priority) return undefined;
    const lane = this.#lanes.get(least);
    let most = lane?.get(fairKey) ?? [];
    const own = most.length;
    for (const waiting of lane?.values() ?? []) if (waiting.length > most.length) most = waiting;
    return most.length > own + 1 ? most.at(-1) : undefined;
  }

  /** Removes a ticket. If it was the next, its key moves to the end. */
  remove(ticket: T): boolean {
    const lane = this.#lanes.get(ticket.priority);
    const waiting = lane?.get(ticket.fairKey);
    const index = waiting?.indexOf(ticket) ?? -1;
    if (!lane || !waiting || index < 0) return false;
    waiting.splice(index, 1);
    this.#size -= 1;
    if (index === 0) {
      lane.delete(ticket.fairKey);
      if (waiting.length > 0) lane.set(ticket.fairKey, waiting);
    }
    if (lane.size === 0) this.#lanes.delete(ticket.priority);
    return true;
  }

  tickets(): T[] {
    return [...this.#lanes.values()].flatMap((lane) => [...lane.values()].flat());
  }
}
