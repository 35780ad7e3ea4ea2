import type { AttachedNode } from "./attached-node.ts";

/** The workers that hold a replica of each deployment, so that a call examines those alone. */
export class ReplicaIndex {
  readonly #holders = new Map<string, Set<AttachedNode>>();
  readonly #held = new Map<AttachedNode, ReadonlySet<string>>();

  /** The workers with a replica in any phase, in the order in which they got it. */
  holders(deployment: string): ReadonlySet<AttachedNode> {
    return this.#holders.get(deployment) ?? NONE;
  }

  /** Applies the node's latest report. */
  update(node: AttachedNode): void {
    const before = this.#held.get(node) ?? NO_NAMES;
    const now = new Set(node.replicas.map(({ deployment }) => deployment));
    for (const deployment of before) if (!now.has(deployment)) this.#drop(deployment, node);
    for (const deployment of now) {
      if (before.has(deployment)) continue;
      const holders = this.#holders.get(deployment);
      if (holders) holders.add(node);
      else this.#holders.set(deployment, new Set([node]));
    }
    this.#held.set(node, now);
  }

  remove(node: AttachedNode): void {
    for (const deployment of this.#held.get(node) ?? []) this.#drop(deployment, node);
    this.#held.delete(node);
  }

  #drop(deployment: string, node: AttachedNode): void {
    const holders = this.#holders.get(deployment);
    holders?.delete(node);
    if (holders?.size === 0) this.#holders.delete(deployment);
  }
}

const NONE: ReadonlySet<AttachedNode> = new Set();
const NO_NAMES: ReadonlySet<string> = new Set();
