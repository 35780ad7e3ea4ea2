import { setTimeout as delay } from "node:timers/promises";
import type { TaskEnd, TaskHandle, TaskUsage } from "../executors/executor.ts";
import type { Pod } from "./kubernetes-types.ts";
import type { PodControl } from "./pod-control.ts";
import type { PodEnd } from "./runner/pod-messages.ts";

const POLL_MS = 200;
/** For the answer to an order of a runner that is busy. */
const ANSWER_MS = 5_000;
/** A Pod that has ended, or is gone, whose runner has not said how: its report may be delayed. */
const LAST_WORDS_MS = 10_000;
/** How long the end waits until Kubernetes has seen it, and the devices are free. */
const OVER_MS = 15_000;
/** A runner that does not obey is removed with its Pod. */
const OBEY_MS = 5_000;

const DELETED = "its Pod was deleted or evicted, as by `kubectl delete`, a drain or a full node";

/** A task's Pod as the executor sees and removes it. */
export interface PodAccess {
  readonly control: PodControl;
  /** 0: none. */
  readonly memoryLimitBytes: number;
  /** Undefined where Kubernetes has none. */
  state(): Pod | undefined;
  remove(graceSeconds: number): Promise<void>;
}

/** A task that runs in a Pod: its runner obeys orders, and says how the program ended. */
export class PodTask implements TaskHandle {
  readonly record: { readonly pod: string };
  readonly exited: Promise<TaskEnd>;
  readonly #access: PodAccess;
  #isKilled = false;

  constructor(name: string, access: PodAccess) {
    this.record = { pod: name };
    this.#access = access;
    this.exited = this.#exited();
  }

  async signal(signal: NodeJS.Signals, onlyCaught = false): Promise<number> {
    const { control } = this.#access;
    const id = await control.order({ kind: "signal", signal, onlyCaught });
    for (const untilMs = performance.now() + ANSWER_MS; performance.now() < untilMs; ) {
      for (const event of await control.events()) {
        if (event.kind === "answer" && event.id === id) return event.count;
        if (event.kind === "end") return 0;
      }
      await delay(POLL_MS / 2);
    }
    return 0;
  }

  async hold(isHeld: boolean): Promise<void> {
    await this.signal(isHeld ? "SIGSTOP" : "SIGCONT");
  }

  async kill(): Promise<void> {
    this.#isKilled = true;
    const ended = this.exited.then(() => true);
    await this.#access.control.order({ kind: "kill" });
    while (!(await Promise.race([ended, delay(OBEY_MS, false)]))) {
      await this.#access.remove(1).catch(() => undefined); // Tried again.
    }
  }

  /** The next process of this worker takes it over, or the runner ends it with the lease. */
  killNow(): void {}

  /** The kubelet bounds the memory of Pods. */
  async usage(): Promise<TaskUsage> {
    return { memoryBytes: 0, processes: 0 };
  }

  async #exited(): Promise<TaskEnd> {
    let overAtMs: number | undefined;
    for (;;) {
      const events = await this.#access.control.events();
      const end = events.find((event) => event.kind === "end");
      if (end) {
        await this.#gone();
        return this.#endOf(end);
      }
      const pod = this.#access.state();
      if (pod && !isOver(pod)) overAtMs = undefined;
      else overAtMs ??= performance.now();
      if (overAtMs !== undefined && performance.now() - overAtMs > LAST_WORDS_MS) {
        // A runner that Kubernetes has lost may still be there.
        await this.#access.control.order({ kind: "kill" });
        await this.#access.remove(1).catch(() => undefined);
        return this.#unheardEnd(pod);
      }
      await delay(POLL_MS);
    }
  }

  /** Waits until the Pod's devices are free, and removes it. */
  async #gone(): Promise<void> {
    const untilMs = performance.now() + OVER_MS;
    for (;;) {
      const pod = this.#access.state();
      if (!pod || isOver(pod) || performance.now() > untilMs) break;
      await delay(POLL_MS / 2);
    }
    // The next sweep finds it.
    await this.#access.remove(1).catch(() => undefined);
  }

  #endOf({ exitCode, signal, isLost, isKilled }: PodEnd): TaskEnd {
    // A SIGKILL that neither this worker nor the runner has sent is that of the memory bound.
    const isOwn = isLost === true || isKilled === true || this.#isKilled;
    const outOfMemory = signal === "SIGKILL" && !isOwn && this.#access.memoryLimitBytes > 0;
    return { exitCode, signal, outOfMemory, ...(isLost && { lostBy: DELETED }) };
  }

  #unheardEnd(pod: Pod | undefined): TaskEnd {
    const state = pod?.status?.containerStatuses?.[0]?.state?.terminated;
    if (state?.reason === "OOMKilled") return { outOfMemory: true };
    const last = lastWords(state?.message);
    if (last) return this.#endOf(last);
    const { reason, message } = pod?.status ?? {};
    return { lostBy: [reason, message].filter(Boolean).join(": ") || DELETED };
  }
}

/** Whether none of its containers runs any more. */
export function isOver({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

function lastWords(text = ""): PodEnd | undefined {
  try {
    const end = JSON.parse(text) as PodEnd | null;
    return end?.kind === "end" ? end : undefined;
  } catch {
    return undefined;
  }
}
