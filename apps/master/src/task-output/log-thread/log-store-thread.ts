import { parentPort, workerData } from "node:worker_threads";
import { answerCalls } from "@heddle/base/async/thread-calls";
import { blockingLogFiles } from "@heddle/storage/log-files";
import { LogStore } from "../log-store.ts";
import type { LoggedLine, LogStoreApi, LogStoreStart } from "./log-store-api.ts";

// The store of logs in a thread of its own: a short log takes a dozen file operations.

if (!parentPort) throw new Error("log-store-thread runs as a worker thread only");
const port = parentPort;
const line = (level: LoggedLine["level"]) => (fields: LoggedLine["fields"], message: string) =>
  port.postMessage({ line: { level, fields, message } satisfies LoggedLine });
const store = new LogStore({
  ...(workerData as LogStoreStart),
  log: { info: line("info"), warn: line("warn"), error: line("error") },
  files: blockingLogFiles(() => performance.now()),
});
answerCalls<LogStoreApi>(port, {
  append: (parameters) => store.append(...parameters),
  state: (parameters) => store.state(...parameters),
  gaps: (parameters) => store.gaps(...parameters),
  fill: (parameters) => store.fill(...parameters),
  read: (parameters) => store.read(...parameters),
  offsetAt: (parameters) => store.offsetAt(...parameters),
  list: (parameters) => store.list(...parameters),
  sweep: (parameters) => store.sweep(...parameters),
  close: () => store.close(),
});
