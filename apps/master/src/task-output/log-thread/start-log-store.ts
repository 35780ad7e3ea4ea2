import type { LogStoreOptions } from "../log-store.ts";
import type { LogStorePort } from "./log-store-api.ts";
import { ThreadedLogStore } from "./threaded-log-store.ts";

/** A module of its own: the simulation of a cluster puts a store without a thread in its place. */
export function startLogStore(options: Omit<LogStoreOptions, "files">): LogStorePort {
  return new ThreadedLogStore(options);
}
