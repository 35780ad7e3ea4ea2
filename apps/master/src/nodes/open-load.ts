import { outranks } from "@heddle/contracts/call-priority";

/** The load of one call on its worker. */
export interface CallLoad {
  readonly deployment: string;
  readonly fairKey: string;
  readonly priority: number;
  /** Its choices. */
  readonly sequences: number;
}

/** The load of one master's open calls on one worker, by deployment. */
export class OpenLoad {
  readonly #sequences = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  /** Sequences by deployment and key. */
  readonly #ofKeys = new Map<string, Map<string, number>>();
  /** Sequences by deployment and priority. */
  readonly #ofPriorities = new Map<string, Map<number, number>>();

  sequences(deployment: string): number {
    return this.#sequences.get(deployment) ?? 0;
  }

  calls(deployment: string): number {
    return this.#calls.get(deployment) ?? 0;
  }

  sequencesOf(deployment: string, fairKey: string): number {
    return this.#ofKeys.get(deployment)?.get(fairKey) ?? 0;
  }

  /** Sequences of lower priorities than the number, which yield to a call of it. */
  yielding(deployment: string, priority: number): number {
    let sum = 0;
    for (const [other, sequences] of this.#ofPriorities.get(deployment) ?? []) {
      if (outranks(priority, other)) sum += sequences;
    }
    return sum;
  }

  add(load: CallLoad): void {
    this.#change(load, 1);
  }

  /** Call once per `add`, unless `clear` was called between. */
  remove(load: CallLoad): void {
    this.#change(load, -1);
  }

  clear(): void {
    this.#sequences.clear();
    this.#calls.clear();
    this.#ofKeys.clear();
    this.#ofPriorities.clear();
  }

  #change({ deployment, fairKey, priority, sequences: own }: CallLoad, calls: 1 | -1): void {
    const sequences = own * calls;
    change(this.#sequences, deployment, sequences);
    change(this.#calls, deployment, calls);
    changeIn(this.#ofKeys, deployment, fairKey, sequences);
    changeIn(this.#ofPriorities, deployment, priority, sequences);
  }
}

function changeIn<Key>(
  all: Map<string, Map<Key, number>>,
  deployment: string,
  key: Key,
  by: number,
): void {
  const counts = all.get(deployment) ?? new Map<Key, number>();
  change(counts, key, by);
  if (counts.size > 0) all.set(deployment, counts);
  else all.delete(deployment);
}

/** Drops entries that reach 0. */
function change<Key>(counts: Map<Key, number>, key: Key, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}
