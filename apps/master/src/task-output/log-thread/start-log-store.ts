import type { LogStoreOptions } from "../log-store.ts";
import type { LogStorePort } from "./log-store-api.ts";
import { ThreadedLogStore } from "./threaded-log-store.ts";

export function startLogStore(options: Omit<LogStoreOptions, "files">): LogStorePort {
  return new ThreadedLogStore(options);
}
