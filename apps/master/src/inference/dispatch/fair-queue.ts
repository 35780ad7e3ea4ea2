import { agedPriority, outranks } from "@heddle/contracts/call-priority";

/** A queued call, as far as its order depends on it. */
export interface QueueTicket {
  /** Keys take turns; within a key the order is that of arrival. */
  readonly fairKey: string;
  /** Higher goes first, whatever its key. */
  readonly priority: number;
  /** The time of its arrival; a call without one does not age. */
  readonly arrivedMs?: number | undefined;
}

/** How often the queue is searched for aged tickets. */
const AGING_PAUSE_MS = 1_000;

/** A queue by priority, which rises with the wait, then keys in turn, then FIFO. */
export class FairQueue<T extends QueueTicket> {
  /** Keyed by priority; the keys of a lane are in the order of their next turns. */
  readonly #lanes = new Map<number, Map<string, T[]>>();
  /** The raised priorities of tickets that have aged. */
  readonly #raised = new Map<T, number>();
  #agedAtMs = Number.NEGATIVE_INFINITY;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(ticket: T): void {
    this.#insert(ticket, ticket.priority);
    this.#size += 1;
  }

  #insert(ticket: T, priority: number): void {
    let lane = this.#lanes.get(priority);
    if (!lane) {
      lane = new Map();
      this.#lanes.set(priority, lane);
    }
    const waiting = lane.get(ticket.fairKey);
    if (waiting) waiting.push(ticket);
    else lane.set(ticket.fairKey, [ticket]);
  }

  /** Raises the tickets that have waited long. */
  age(nowMs: number): void {
    if (nowMs < this.#agedAtMs + AGING_PAUSE_MS) return;
    this.#agedAtMs = nowMs;
    for (const ticket of this.tickets()) {
      if (ticket.arrivedMs === undefined) continue;
      const present = this.#priorityOf(ticket);
      const aged = agedPriority(ticket.priority, nowMs - ticket.arrivedMs);
      if (aged <= present) continue;
      this.#take(ticket, present);
      this.#raised.set(ticket, aged);
      this.#insert(ticket, aged);
    }
  }

  #priorityOf(ticket: T): number {
    return this.#raised.get(ticket) ?? ticket.priority;
  }

  /** The place of a waiting ticket, 1 for the next, if no other comes and each takes one turn. */
  positionOf(ticket: T): number | undefined {
    const priority = this.#priorityOf(ticket);
    const own = this.#lanes.get(priority)?.get(ticket.fairKey);
    const index = own?.indexOf(ticket) ?? -1;
    if (index < 0) return undefined;
    let ahead = index;
    for (const [other, lane] of this.#lanes) {
      if (other > priority) for (const waiting of lane.values()) ahead += waiting.length;
    }
    let isBeforeOwn = true;
    for (const [key, waiting] of this.#lanes.get(priority) ?? []) {
      if (key === ticket.fairKey) isBeforeOwn = false;
      else ahead += Math.min(waiting.length, isBeforeOwn ? index + 1 : index);
    }
    return ahead + 1;
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
   * The victim for a ticket: the last one of the key with the most tickets at the lowest priority.
   * None for a ticket of that priority whose key would then have as many.
   */
  crowding(fairKey: string, priority: number): T | undefined {
    const least = Math.min(...this.#lanes.keys());
    if (least > priority) return undefined;
    const lane = this.#lanes.get(least)!;
    let most = lane.get(fairKey) ?? [];
    const own = most.length;
    for (const waiting of lane.values()) if (waiting.length > most.length) most = waiting;
    const yields = outranks(priority, least) || most.length > own + 1;
    return yields ? most.at(-1) : undefined;
  }

  /** Removes a ticket. If it was the next, its key moves to the end. */
  remove(ticket: T): boolean {
    if (!this.#take(ticket, this.#priorityOf(ticket))) return false;
    this.#raised.delete(ticket);
    this.#size -= 1;
    return true;
  }

  #take(ticket: T, priority: number): boolean {
    const lane = this.#lanes.get(priority);
    const waiting = lane?.get(ticket.fairKey);
    const index = waiting?.indexOf(ticket) ?? -1;
    if (!lane || !waiting || index < 0) return false;
    waiting.splice(index, 1);
    if (index === 0) {
      lane.delete(ticket.fairKey);
      if (waiting.length > 0) lane.set(ticket.fairKey, waiting);
    }
    if (lane.size === 0) this.#lanes.delete(priority);
    return true;
  }

  tickets(): T[] {
    return [...this.#lanes.values()].flatMap((lane) => [...lane.values()].flat());
  }
}
