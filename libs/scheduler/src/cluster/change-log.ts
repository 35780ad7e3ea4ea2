/** The share of changed nodes beyond which a full scan costs no more than following changes. */
const WORTH_FOLLOWING = 1 / 4;

/**
 * The changed nodes in order, which an index follows from its last position. It keeps about as many
 * changes as there are nodes; a reader that is further behind scans all nodes.
 */
export class ChangeLog {
  #nodes: number;
  #kept: number[] = [];
  #dropped = 0;
  /** Indexed by node: the last reading that listed it. */
  #listed: Uint32Array;
  #readings = 0;

  constructor(nodes: number) {
    this.#nodes = nodes;
    this.#listed = new Uint32Array(nodes);
  }

  push(node: number): void {
    if (node >= this.#nodes) this.#grow(node + 1);
    this.#kept.push(node);
    if (this.#kept.length <= 2 * this.#nodes + 1_024) return;
    const cut = this.#kept.length >> 1;
    this.#kept = this.#kept.slice(cut);
    this.#dropped += cut;
  }

  /** Grows by one with each change. */
  get position(): number {
    return this.#dropped + this.#kept.length;
  }

  /** The nodes changed since the position, each once; undefined if a full scan is cheaper. */
  since(position: number): number[] | undefined {
    if (position < this.#dropped) return undefined;
    const reading = this.#nextReading();
    const limit = this.#nodes * WORTH_FOLLOWING;
    const changed: number[] = [];
    for (let at = position - this.#dropped; at < this.#kept.length; at++) {
      const node = this.#kept[at]!;
      if (this.#listed[node] === reading) continue;
      this.#listed[node] = reading;
      changed.push(node);
      if (changed.length > limit) return undefined;
    }
    return changed;
  }

  #grow(nodes: number): void {
    this.#nodes = nodes;
    if (nodes <= this.#listed.length) return;
    const listed = new Uint32Array(2 * nodes);
    listed.set(this.#listed);
    this.#listed = listed;
  }

  #nextReading(): number {
    if (this.#readings === 2 ** 32 - 1) {
      this.#listed.fill(0);
      this.#readings = 0;
    }
    return ++this.#readings;
  }
}
