/** The load of one call on its worker. */
export interface CallLoad {
  readonly deployment: string;
  readonly fairKey: string;
  /** Its choices. */
  readonly sequences: number;
}

/** The load of one master's open calls on one worker, by deployment. */
export class OpenLoad {
  readonly #sequences = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  /** Sequences by deployment and key. */
  readonly #ofKeys = new Map<string, Map<string, number>>();

  sequences(deployment: string): number {
    return this.#sequences.get(deployment) ?? 0;
  }

  calls(deployment: string): number {
    return this.#calls.get(deployment) ?? 0;
  }

  sequencesOf(deployment: string, fairKey: string): number {
    return this.#ofKeys.get(deployment)?.get(fairKey) ?? 0;
  }

  add({ deployment, fairKey, sequences }: CallLoad): void {
    this.#change(deployment, fairKey, sequences, 1);
  }

  /** Call once per `add`, unless `clear` came between. */
  remove({ deployment, fairKey, sequences }: CallLoad): void {
    this.#change(deployment, fairKey, -sequences, -1);
  }

  clear(): void {
    this.#sequences.clear();
    this.#calls.clear();
    this.#ofKeys.clear();
  }

  #change(deployment: string, fairKey: string, sequences: number, calls: number): void {
    const ofKeys = this.#ofKeys.get(deployment) ?? new Map<string, number>();
    change(this.#sequences, deployment, sequences);
    change(this.#calls, deployment, calls);
    change(ofKeys, fairKey, sequences);
    if (ofKeys.size > 0) this.#ofKeys.set(deployment, ofKeys);
    else this.#ofKeys.delete(deployment);
  }
}

/** Drops entries that reach 0. */
function change(counts: Map<string, number>, key: string, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}
