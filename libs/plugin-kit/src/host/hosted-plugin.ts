import { Backoff } from "@heddle/base/backoff";
import { AppError } from "@heddle/base/errors";
import { HiddenValues } from "@heddle/base/hidden-values";
import type { Log } from "@heddle/observability/logger";
import { LoadFault, PLUGIN_FAULT_KINDS, type PluginFaultKind } from "../loading/load-fault.ts";
import type { HostedEntry } from "../loading/plugin-list.ts";
import type { PluginHostKind } from "../plugin.ts";
import { type PluginBackend, PluginFault } from "./backend.ts";
import { CallLimit, CallLimits } from "./call-limit.ts";
import type { PluginDescription } from "./description.ts";
import { loadInline } from "./inline-plugin.ts";
import { answerTo, type PluginCall, type RouteCall } from "./plugin-calls.ts";
import { PluginProcess } from "./plugin-process.ts";

/** Calls of one plugin at a time; further ones are refused. */
const MAX_CALLS = 256;
const RESTART = { baseMs: 500, maxMs: 60_000 };
/** A process that lived this long starts again without a long delay. */
const STEADY_MS = 60_000;

export type PluginState = "ready" | "restarting" | "refused" | "idle";

/** A plugin of this process as operators see it. */
export interface PluginStatus {
  readonly from: string;
  /** `idle`: it adds nothing that runs here, so it has no process. */
  readonly state: PluginState;
  /** Why it is refused or restarts. */
  readonly reason: string | undefined;
  readonly isolation: HostedEntry["isolation"];
  readonly description: PluginDescription | undefined;
  readonly calls: number;
  readonly restarts: number;
  readonly faults: Readonly<Record<PluginFaultKind, number>>;
  readonly memoryBytes: number;
}

/** A process that calls plugins. */
export type PluginUser = Extract<PluginHostKind, "master" | "worker">;

interface HostOptions {
  /** By default a master. */
  readonly kind?: PluginUser;
  /** How often its process is asked whether it answers. */
  readonly pingMs?: number | undefined;
}

interface CallOptions {
  readonly timeoutMs: number;
  /** Is given what ends a call without an answer yet, when its caller is gone. */
  readonly onStart?: ((cancel: () => void) => void) | undefined;
}

type Additions = (description: PluginDescription) => readonly (readonly unknown[])[];

/** What is called of a plugin in each kind of process; without any it needs no process. */
const USED: Readonly<Record<PluginUser, Additions>> = {
  master: ({ routes, admission, filters, scores, sinks, blocks }) => {
    return [routes, admission, filters, scores, sinks, blocks];
  },
  worker: ({ executors }) => [executors],
};

/** One plugin of this process: starts it, bounds its calls, counts its faults, starts it again. */
export class HostedPlugin {
  readonly entry: HostedEntry;
  readonly #log: Log;
  /** The hidden values of its settings; its errors and its output may have them. */
  readonly #hidden: HiddenValues;
  readonly #kind: PluginUser;
  readonly #pingMs: number | undefined;
  readonly #backoff = new Backoff(RESTART);
  readonly #faults = Object.fromEntries(PLUGIN_FAULT_KINDS.map((kind) => [kind, 0])) as Record<
    PluginFaultKind,
    number
  >;
  readonly #limits = new CallLimits();
  #backend: PluginBackend | undefined;
  #description: PluginDescription | undefined;
  #state: PluginState = "restarting";
  #reason: string | undefined;
  #calls = 0;
  #running = 0;
  #restarts = 0;
  #startedMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(entry: HostedEntry, log: Log, { kind = "master", pingMs }: HostOptions) {
    this.entry = entry;
    this.#log = log;
    this.#hidden = new HiddenValues(secretsIn(entry.config));
    this.#kind = kind;
    this.#pingMs = pingMs;
  }

  /** Resolves when the plugin is loaded or refused. */
  static async start(
    entry: HostedEntry,
    log: Log,
    options: HostOptions = {},
  ): Promise<HostedPlugin> {
    const plugin = new HostedPlugin(entry, log, options);
    await plugin.#loadOrRefuse();
    return plugin;
  }

  /** A plugin that is not started. */
  static refused(entry: HostedEntry, log: Log, reason: string): HostedPlugin {
    const plugin = new HostedPlugin(entry, log, {});
    plugin.refuse(reason);
    return plugin;
  }

  /** Starts one that was refused: what it needs may be there now. */
  async startAgain(): Promise<void> {
    if (this.#state === "refused") await this.#loadOrRefuse();
  }

  get description(): PluginDescription | undefined {
    return this.#description;
  }

  get name(): string {
    return this.#description?.name ?? this.entry.from;
  }

  get state(): PluginState {
    return this.#state;
  }

  status(): PluginStatus {
    const { from, isolation } = this.entry;
    return {
      from,
      state: this.#state,
      reason: this.#reason,
      isolation,
      description: this.#description,
      calls: this.#calls,
      restarts: this.#restarts,
      faults: { ...this.#faults },
      memoryBytes: this.#backend?.memoryBytes ?? 0,
    };
  }

  /** It stays out of use until the process starts again. */
  refuse(why: string): void {
    const reason = this.#hidden.hide(why);
    this.#state = "refused";
    this.#reason = reason;
    this.#backend?.close();
    this.#backend = undefined;
    this.#log.error({ plugin: this.name, reason }, "a plugin is refused");
  }

  /** The plugin's answer. Rejects with an AppError, also for faults of the plugin. */
  async call(call: PluginCall, { timeoutMs, onStart }: CallOptions): Promise<unknown> {
    const backend = this.#admit();
    const limit = new CallLimit(this.#limits, timeoutMs);
    try {
      const answer = backend.call(call, limit);
      if (!(answer instanceof Promise)) return answerTo(call, answer);
      limit.start();
      onStart?.(() => limit.cancel());
      return answerTo(call, await answer);
    } catch (error) {
      throw this.#attributed(error, limit, timeoutMs);
    } finally {
      limit.close();
      this.#running--;
    }
  }

  /** The events of a stream as text; each must come within the time limit. */
  async *stream(call: RouteCall, { timeoutMs, onStart }: CallOptions): AsyncGenerator<string> {
    const backend = this.#admit();
    const limit = new CallLimit(this.#limits, timeoutMs);
    limit.start();
    onStart?.(() => limit.cancel());
    try {
      for await (const text of backend.stream(call, limit)) {
        limit.pause();
        yield text;
        limit.start();
      }
    } catch (error) {
      throw this.#attributed(error, limit, timeoutMs);
    } finally {
      limit.close();
      this.#running--;
    }
  }

  /** Counts an answer that cannot be used as an error of the plugin. */
  blame(why: string): void {
    this.#faults.threw++;
    const detail = this.#hidden.hide(why);
    this.#log.warn({ plugin: this.name, detail }, "a plugin has failed");
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#backend?.close();
  }

  async #loadOrRefuse(): Promise<void> {
    try {
      await this.#load();
    } catch (error) {
      this.#count(error);
      this.refuse((error as Error).message);
    }
  }

  #count(error: unknown): void {
    if (error instanceof LoadFault) this.#faults[error.kind]++;
  }

  async #load(): Promise<void> {
    const { entry } = this;
    const log = (text: string) => {
      const line = this.#hidden.hide(text);
      this.#log.info({ plugin: this.name, line }, "a plugin's output");
    };
    const backend =
      entry.isolation === "none"
        ? await loadInline(entry, this.#kind, log)
        : await PluginProcess.start({
            entry,
            kind: this.#kind,
            pingMs: this.#pingMs,
            log,
            onEnd: (kind, reason) => this.#onEnd(kind, reason),
          });
    if (this.#closed) return backend.close();
    this.#use(backend);
  }

  #use(backend: PluginBackend): void {
    const { description } = backend;
    const before = this.#description;
    if (before && JSON.stringify(before) !== JSON.stringify(description)) {
      backend.close();
      throw new Error("it is another plugin since this process started: restart this process");
    }
    this.#description = description;
    this.#reason = undefined;
    this.#startedMs = performance.now();
    const isUsed = USED[this.#kind](description).some(({ length }) => length > 0);
    this.#state = isUsed ? "ready" : "idle";
    if (isUsed) this.#backend = backend;
    else backend.close();
  }

  #onEnd(kind: PluginFaultKind, reason: string): void {
    this.#backend = undefined;
    this.#faults[kind]++;
    if (this.#state === "refused") return;
    if (performance.now() - this.#startedMs > STEADY_MS) this.#backoff.reset();
    this.#log.warn({ plugin: this.name, kind, reason }, "a plugin is started again");
    this.#restartLater(reason);
  }

  #restartLater(reason: string): void {
    this.#state = "restarting";
    this.#reason = this.#hidden.hide(reason);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#restart(), this.#backoff.nextMs());
    this.#timer.unref();
  }

  async #restart(): Promise<void> {
    this.#restarts++;
    try {
      await this.#load();
    } catch (error) {
      this.#count(error);
      this.#restartLater((error as Error).message);
    }
  }

  #admit(): PluginBackend {
    const backend = this.#backend;
    if (!backend) {
      const message = `The plugin ${this.name} is not available: ${this.#reason ?? this.#state}.`;
      throw new AppError("unavailable", message, { retryAfterMs: 1_000 });
    }
    if (this.#running >= MAX_CALLS) {
      const message = `The plugin ${this.name} runs ${MAX_CALLS} calls, as many as it may.`;
      throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
    }
    this.#running++;
    this.#calls++;
    return backend;
  }

  #attributed(thrown: unknown, { isLate }: CallLimit, timeoutMs: number): AppError {
    if (isLate) {
      this.#faults.late++;
      const message = `The plugin ${this.name} gave no answer within ${timeoutMs} ms.`;
      return new AppError("deadline_exceeded", message);
    }
    if (thrown instanceof AppError) return thrown;
    this.blame(thrown instanceof PluginFault ? thrown.message : String(thrown));
    return new AppError(
      "server_error",
      `The plugin ${this.name} had an error; the log of its process has it.`,
      {
        cause: thrown,
      },
    );
  }
}

const SECRET_NAME = /secret|token|password|passphrase|credential|authorization|key$/i;

/** The texts of settings whose names say that they are secrets, at any depth. */
function secretsIn(config: unknown, isSecret = false): string[] {
  if (typeof config === "string") return isSecret ? [config] : [];
  if (typeof config !== "object" || config === null) return [];
  return Object.entries(config).flatMap(([name, value]) =>
    secretsIn(value, isSecret || SECRET_NAME.test(name)),
  );
}
