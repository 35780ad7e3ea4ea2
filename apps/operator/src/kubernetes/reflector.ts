import { keepConnected } from "@heddle/base/async/keep-connected";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { type CustomResource, objectKey, type ResourceStatus } from "./custom-resource.ts";
import { apiFaultText, type ResourceApi, type WatchEvent } from "./resource-api.ts";

const BACKOFF = { baseMs: 200, maxMs: 30_000 };

/**
 * A copy of all objects of one kind, kept current by a list and a watch. Every end of the watch, an
 * expired version (410) too, is followed by a new list: a change is never missed, however it was lost.
 */
export class Reflector<R extends CustomResource<unknown, ResourceStatus>> {
  readonly #api: ResourceApi<R>;
  readonly #onChange: (key: string) => void;
  readonly #log: Log;
  readonly #objects = new Map<string, R>();
  #isSynced = false;

  constructor(api: ResourceApi<R>, onChange: (key: string) => void, log: Log) {
    this.#api = api;
    this.#onChange = onChange;
    this.#log = log;
  }

  /** Whether all objects are known since the latest start of the watch. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  get(key: string): R | undefined {
    return this.#objects.get(key);
  }

  objects(): IterableIterator<R> {
    return this.#objects.values();
  }

  /** Resolves once the signal has aborted. */
  run(signal: AbortSignal): Promise<void> {
    return keepConnected<unknown>({
      connect: (onOpen) => this.#listAndWatch(onOpen, signal).catch((error: unknown) => error),
      backoff: BACKOFF,
      signal,
      onEnd: (error) => {
        this.#isSynced = false;
        if (error === undefined) return 0;
        const { plural } = this.#api;
        this.#log.warn({ plural, why: apiFaultText(error) }, "the watch begins again");
        return undefined;
      },
    });
  }

  async #listAndWatch(onOpen: () => void, signal: AbortSignal): Promise<undefined> {
    const { items, resourceVersion } = await this.#api.list();
    this.#replace(items);
    this.#isSynced = true;
    onOpen();
    const broken = new AbortController();
    let fault: unknown;
    const onEvent = (event: WatchEvent<R>) => {
      if (event.type !== "ERROR") return this.#apply(event);
      fault = faultOf(event);
      broken.abort();
    };
    const watched = AbortSignal.any([signal, broken.signal]);
    await this.#api.watch(resourceVersion, onEvent, watched).catch((error: unknown) => {
      fault ??= error;
    });
    if (fault) throw fault;
    return undefined;
  }

  #replace(items: readonly R[]): void {
    const known = new Set(this.#objects.keys());
    for (const item of items) {
      known.delete(objectKey(item));
      this.#apply({ type: "MODIFIED", object: item });
    }
    for (const key of known) {
      this.#objects.delete(key);
      this.#onChange(key);
    }
  }

  #apply({ type, object }: WatchEvent<R>): void {
    if (type === "BOOKMARK") return;
    const key = objectKey(object);
    if (type === "DELETED") this.#objects.delete(key);
    else this.#objects.set(key, object);
    this.#onChange(key);
  }
}

/** The object of an ERROR event is a Status of Kubernetes. */
function faultOf({ object }: WatchEvent<unknown>): AppError {
  const { code, message } = object as { readonly code?: number; readonly message?: string };
  return new AppError("unavailable", `${code ?? "error"}: ${message ?? "the watch has failed"}`);
}
