/** Some of a node's tasks by their status keys, or all of them. */
export type TaskKeys = ReadonlySet<string> | "all";

/** Tasks by the node that has them. */
export class NodeTasks {
  readonly #byNode = new Map<string, Set<string> | "all">();

  has(node: string): boolean {
    return this.#byNode.has(node);
  }

  add(node: string, keys: TaskKeys): void {
    const known = this.#byNode.get(node);
    if (known === "all") return;
    if (keys === "all") this.#byNode.set(node, keys);
    else this.#byNode.set(node, new Set([...(known ?? []), ...keys]));
  }

  addOne(node: string, key: string): void {
    const known = this.#byNode.get(node);
    if (known === undefined) this.#byNode.set(node, new Set([key]));
    else if (known !== "all") known.add(key);
  }

  /** The node's tasks, from now on none. */
  take(node: string): TaskKeys {
    const keys = this.#byNode.get(node) ?? new Set();
    this.#byNode.delete(node);
    return keys;
  }

  /** Takes the tasks of all nodes; none are left. */
  takeAll(): ReadonlyMap<string, TaskKeys> {
    const all = new Map(this.#byNode);
    this.#byNode.clear();
    return all;
  }
}
