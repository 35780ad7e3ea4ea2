import { mkdir, readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { retry } from "@heddle/base/async/retry";
import { toAppError } from "@heddle/base/errors";
import { replaceFile } from "@heddle/base/replace-file";
import type { EventStore } from "@heddle/event-store/log/event-store";
import type { Log } from "@heddle/observability/logger";
import type { SinkDescription } from "@heddle/plugin-kit/host/description";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { SinkEvent } from "@heddle/plugin-kit/points/events";

const DELIVERY_MS = 30_000;
const RETRY = { baseMs: 500, maxMs: 60_000 };
/** A position is written at most this often; a restart repeats what came after it. */
const KEEP_MS = 1_000;

export interface DeliveryOptions {
  readonly plugin: HostedPlugin;
  readonly sink: SinkDescription;
  readonly store: Pick<EventStore, "first" | "size" | "read" | "grownBeyond">;
  /** The file with the position. */
  readonly file: string;
  readonly log: Log;
}

/** Gives the events of this master's log to one sink of a plugin, in order, each at least once. */
export class EventDelivery {
  readonly #options: DeliveryOptions;
  readonly #ended = new AbortController();
  #next = 0;
  #kept = -1;
  #keptMs = Number.NEGATIVE_INFINITY;
  #cancel: (() => void) | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(options: DeliveryOptions) {
    this.#options = options;
  }

  get plugin(): string {
    return this.#options.plugin.name;
  }

  get sink(): string {
    return this.#options.sink.name;
  }

  /** Events that the sink does not have. */
  get lag(): number {
    return Math.max(0, this.#options.store.size - this.#next);
  }

  start(): void {
    this.#running = this.#run();
  }

  /** Resolves when the position is written. */
  async close(): Promise<void> {
    this.#ended.abort();
    this.#cancel?.();
    await this.#running;
  }

  /** Runs until `close`; a sink that fails gets the same events again, after a delay. */
  async #run(): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#ended;
    const onRetry = (error: unknown) => {
      const why = toAppError(error).message;
      log.warn({ plugin: this.plugin, sink: this.sink, why }, "events are given again");
    };
    this.#next = await this.#position();
    try {
      for (;;) await retry(() => this.#step(signal), { backoff: RETRY, signal, onRetry });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    await this.#keep(true).catch((error: unknown) => {
      log.error({ why: toAppError(error).message }, "the position of a sink was not written");
    });
  }

  async #step(signal: AbortSignal): Promise<void> {
    const { store, plugin, sink } = this.#options;
    if (this.#next < store.first) this.#skipRemoved();
    await store.grownBeyond(this.#next, signal);
    const { first, entries } = await store.read(this.#next);
    const events = entries
      .map((bytes) => JSON.parse(Buffer.from(bytes).toString("utf8")) as SinkEvent)
      .filter(({ type }) => sink.types === undefined || sink.types.includes(type));
    if (events.length > 0) {
      const call = { point: "events" as const, name: sink.name, events };
      const onStart = (cancel: () => void) => {
        this.#cancel = cancel;
      };
      await plugin.call(call, { timeoutMs: DELIVERY_MS, onStart });
    }
    this.#next = first + entries.length;
    await this.#keep();
  }

  #skipRemoved(): void {
    const { store, log } = this.#options;
    const removed = store.first - this.#next;
    log.error({ plugin: this.plugin, sink: this.sink, removed }, "events were removed undelivered");
    this.#next = store.first;
  }

  /** At a sink's first start its own choice. */
  async #position(): Promise<number> {
    const { file, store, sink } = this.#options;
    const text = await readFile(file, "utf8").catch(() => "");
    const next = Number(/^\d{1,15}$/.exec(text.trim())?.[0] ?? Number.NaN);
    // A restored cluster begins another, shorter log.
    if (Number.isSafeInteger(next) && next <= store.size) return next;
    return sink.from === "start" ? store.first : store.size;
  }

  async #keep(isLast = false): Promise<void> {
    const now = performance.now();
    if (this.#next === this.#kept || (!isLast && now - this.#keptMs < KEEP_MS)) return;
    const { file } = this.#options;
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    await replaceFile(file, `${this.#next}\n`);
    this.#kept = this.#next;
    this.#keptMs = now;
  }
}
