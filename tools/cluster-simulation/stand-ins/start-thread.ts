import { EventEmitter } from "node:events";
import type { MessagePort } from "node:worker_threads";
import type { ThreadCalls } from "@heddle/base/async/thread-calls";
// Loaded beforehand: what a thread imports later would come at a real time.
import "../../../apps/parameter-server/dist/checkpoint/restore-shard.js";
import "../../../apps/parameter-server/dist/shard/norm-requests.js";
import "../../../apps/parameter-server/dist/shard/part-peers.js";
import { serveShard } from "../../../apps/parameter-server/dist/shard/serve-shard.js";
import type { ShardStart } from "../../../apps/parameter-server/src/shard/shard-api.ts";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import type { ShardWatch, ThreadMessage } from "../training/shard-oracle.ts";
import { worldOf } from "../world.ts";

/** The longest delay of a message between two threads. */
const MAX_DELAY_US = 200;

/** A shard's thread as a part of its simulated process: its messages are events. */
export function startThread(start: ShardStart): ConstructorParameters<typeof ThreadCalls>[0] {
  const process = here();
  if (!process) throw new Error("a thread of no simulated process");
  const thread = new SimulatedThread(process, start);
  return thread as unknown as ConstructorParameters<typeof ThreadCalls>[0];
}

class SimulatedThread extends EventEmitter {
  readonly #owner: SimulatedProcess;
  readonly #thread: SimulatedProcess;
  readonly #toThread: MessageLine;
  readonly #watch: ShardWatch;

  constructor(owner: SimulatedProcess, start: ShardStart) {
    super();
    this.#owner = owner;
    this.#thread = owner.thread(`${owner.name} ${start.spec.jobId} shard ${start.spec.shard}`);
    const inside = new EventEmitter();
    this.#watch = worldOf(owner).shards.thread(start.spec, this.#thread);
    this.#toThread = new MessageLine(this.#thread, (message) => inside.emit("message", message));
    const toOwner = new MessageLine(owner, (message) => this.emit("message", message));
    const postMessage = (message: ThreadMessage) => {
      if (!this.#thread.isAlive) return;
      this.#watch.answers(message);
      toOwner.send(message);
    };
    const port = Object.assign(inside, { postMessage }) as unknown as MessagePort;
    this.#thread
      .run(() => serveShard(start, port))
      .catch((error: Error) => owner.after(0, () => this.emit("error", error)));
  }

  postMessage(message: ThreadMessage): void {
    this.#watch.calls(message);
    this.#toThread.send(message);
  }

  terminate(): Promise<void> {
    this.#watch.closes();
    this.#thread.end();
    return new Promise((resolve) =>
      this.#owner.after(0, () => {
        this.emit("exit", 0);
        resolve();
      }),
    );
  }
}

/** Messages of one direction, in order. */
class MessageLine {
  readonly #to: SimulatedProcess;
  readonly #deliver: (message: unknown) => void;
  #newestUs = 0;

  constructor(to: SimulatedProcess, deliver: (message: unknown) => void) {
    this.#to = to;
    this.#deliver = deliver;
  }

  send(message: unknown): void {
    const { queue, dice } = this.#to;
    const copy = structuredClone(message);
    this.#newestUs = Math.max(this.#newestUs + 1, queue.nowUs + dice.skewed(1, MAX_DELAY_US));
    this.#to.after(this.#newestUs - queue.nowUs, () => this.#deliver(copy));
  }
}
