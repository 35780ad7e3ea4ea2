import { LogStore, type LogStoreOptions } from "../../../apps/master/dist/task-output/log-store.js";

/** The store of logs in the master's own thread: the simulated disk is of one thread. */
export function startLogStore(options: LogStoreOptions): LogStore {
  return new LogStore(options);
}
