import type { LogStore, LogStoreOptions } from "../log-store.ts";

/** A store of logs, in this thread or in one of its own. */
export type LogStorePort = Pick<LogStore, keyof LogStore>;

type Method = Exclude<keyof LogStore, "onGrown">;

/** The calls that the thread of the logs answers, each with its parameters as a list. */
export type LogStoreApi = {
  readonly [Name in Method]: (
    parameters: Parameters<LogStore[Name]>,
  ) => Promise<Awaited<ReturnType<LogStore[Name]>>>;
};

/** What the thread is started with. */
export type LogStoreStart = Omit<LogStoreOptions, "log" | "files">;

/** A line for the log of this process. */
export interface LoggedLine {
  readonly level: "info" | "warn" | "error";
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}
