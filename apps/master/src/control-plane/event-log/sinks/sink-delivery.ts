import { createHash } from "node:crypto";
import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { retry } from "@heddle/base/async/retry";
import { toAppError } from "@heddle/base/errors";
import { sentTo } from "@heddle/control/audit/audit-changes";
import { COPIES_EVENTS, versionOf } from "@heddle/control/cluster-version";
import type { Logger } from "@heddle/observability/logger";
import { isActiveLeader } from "../../active-leader.ts";
import type { ControlPlane } from "../../control-plane.ts";
import { propose } from "../../propose.ts";
import type { RecordedEvents } from "../../recorded-events.ts";
import { opener } from "../opened-event.ts";
import type { LogSink, SinkBatch } from "./log-sink.ts";

/** Events of a batch; their bytes are bounded by what the log reads at once. */
const MAX_BATCH = 1_000;
const IDLE_MS = 1_000;
const RETRY = { baseMs: 1_000, maxMs: 60_000 };

interface DeliveryParts {
  readonly control: ControlPlane;
  readonly events: RecordedEvents;
  readonly sink: LogSink;
  readonly log: Logger;
}

/**
 * Copies the event log to a sink, the oldest first, one batch at a time. Each master writes to a
 * sink that knows its own place; only the leader writes to others, and keeps their place in the
 * replicated state.
 */
export class SinkDelivery {
  readonly #parts: DeliveryParts;
  /** The ID of the position in the replicated state. */
  readonly #id: string;
  readonly #stop = new AbortController();
  #fault = "";
  /** Since the start of this process. */
  readonly counts = { sent: 0, failed: 0, removed: 0 };

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
    this.#id = createHash("sha256").update(parts.sink.name).digest("hex").slice(0, 16);
  }

  get name(): string {
    return this.#parts.sink.name;
  }

  async run(): Promise<void> {
    const { sink } = this.#parts;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const options = { backoff: RETRY, signal, onRetry: (error: unknown) => this.#note(error) };
      const isCopied = await retry(() => this.#step(), options).catch(() => false);
      this.#note(undefined);
      const waitMs = isCopied ? sink.gatherMs : IDLE_MS;
      await abortableDelay(waitMs, signal, { ref: false });
    }
    await sink.close();
  }

  close(): void {
    this.#stop.abort();
  }

  /** Logs each fault once, and its end. */
  #note(error: unknown): void {
    const { sink, log } = this.#parts;
    const message = error === undefined ? "" : toAppError(error).message;
    if (error !== undefined) this.counts.failed++;
    if (message === this.#fault || this.#stop.signal.aborted) return;
    this.#fault = message;
    if (message === "") log.info({ sink: sink.name }, "events are copied again");
    else log.warn({ sink: sink.name, why: message }, "a sink waits");
  }

  /** Whether there was something to copy. */
  async #step(): Promise<boolean> {
    const { control, events, sink } = this.#parts;
    const isShared = sink.next === undefined;
    if (events.missing > 0 || versionOf(control.state) < COPIES_EVENTS) return false;
    if (isShared && !isActiveLeader(control)) return false;
    const known = isShared ? sentTo(control.state.cluster, this.#id) : await sink.next?.();
    const batch = await this.#batch(known ?? events.store.first);
    if (batch.texts.length === 0) return false;
    await sink.write(batch);
    this.counts.sent += batch.texts.length;
    if (!isShared) return true;
    const next = batch.first + batch.texts.length;
    await propose(control, { type: "events.sent", atMs: Date.now(), sink: this.#id, next });
    return true;
  }

  async #batch(from: number): Promise<SinkBatch> {
    const { control, events, sink, log } = this.#parts;
    const { store } = events;
    const first = Math.max(from, store.first);
    if (first > from) {
      this.counts.removed += first - from;
      const lost = { sink: sink.name, first: from, end: first };
      log.error(lost, "events were removed before they were copied");
    }
    if (first >= store.size) return { first, texts: [] };
    const open = opener(control.state, events);
    const { entries } = await store.read(first, MAX_BATCH);
    return { first, texts: entries.map((bytes, at) => open(bytes, first + at).text) };
  }
}
