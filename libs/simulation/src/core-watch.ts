import { RawNode } from "@heddle/raft/raw-node";
import type { Ready } from "@heddle/raft/ready";

/** Sees each batch that a core hands to its driver. */
export type ReadyWatcher = (id: number, raw: RawNode, ready: Ready) => void;

/**
 * Shows every batch of every core to the watcher until the returned function is called. It wraps
 * `RawNode.prototype.ready`, since a replica rightly shows its core to nobody.
 */
export function watchCores(watcher: ReadyWatcher): () => void {
  const original = RawNode.prototype.ready;
  const ids = new WeakMap<RawNode, number>();
  RawNode.prototype.ready = function (this: RawNode) {
    const ready = original.call(this);
    let id = ids.get(this);
    if (id === undefined) {
      id = this.status().id;
      ids.set(this, id);
    }
    watcher(id, this, ready);
    return ready;
  };
  return () => {
    RawNode.prototype.ready = original;
  };
}
