import type { Message } from "@heddle/raft/core/message";
import type { Ready } from "@heddle/raft/core/ready";
import { RawNode } from "@heddle/raft/raw-node";

/** Observes the inputs and outputs of every core. */
export interface CoreWatcher {
  /** A batch that the core returns to its driver. */
  ready(id: number, raw: RawNode, ready: Ready): void;
  /** A message that the core processes. */
  received(raw: RawNode, message: Message): void;
  /** A read that the core's own driver requests. */
  asked(raw: RawNode, context: Uint8Array): void;
}

/**
 * Shows every core to the watcher until the returned function is called. It wraps methods of
 * `RawNode.prototype`, since a replica rightly does not expose its core.
 */
export function watchCores(watcher: CoreWatcher): () => void {
  const { ready, step, readIndex } = RawNode.prototype;
  const ids = new WeakMap<RawNode, number>();
  RawNode.prototype.ready = function (this: RawNode) {
    const batch = ready.call(this);
    let id = ids.get(this);
    if (id === undefined) {
      id = this.status().id;
      ids.set(this, id);
    }
    watcher.ready(id, this, batch);
    return batch;
  };
  RawNode.prototype.step = function (this: RawNode, message) {
    watcher.received(this, message);
    return step.call(this, message);
  };
  RawNode.prototype.readIndex = function (this: RawNode, context) {
    watcher.asked(this, context);
    return readIndex.call(this, context);
  };
  return () => {
    Object.assign(RawNode.prototype, { ready, step, readIndex });
  };
}
