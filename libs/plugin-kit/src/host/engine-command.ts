import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import type { HostedEntry } from "../loading/plugin-list.ts";
import { codeFolders } from "../loading/plugin-source.ts";
import { childFlags } from "./child-flags.ts";

const PROGRAM = fileURLToPath(
  new URL(`./plugin-engine-main${extname(import.meta.url)}`, import.meta.url),
);
const START_TIMEOUT_MS = 60_000;

/** The plugin and its engine, which the process loads. */
export interface EngineOrders {
  readonly entry: HostedEntry;
  readonly engine: string;
}

/** The command that serves an engine of a plugin; `{port}` and others are its starter's to fill in. */
export function engineCommand(orders: EngineOrders) {
  // Braces in it would be taken for places.
  const text = Buffer.from(JSON.stringify(orders)).toString("base64");
  return {
    argv: [
      process.execPath,
      ...childFlags(orders.entry, codeFolders(orders.entry)),
      PROGRAM,
      "{port}",
      "{model_file}",
    ],
    // Every user of the machine sees the arguments, and settings may be secrets.
    env: { PLUGIN_ENGINE_KEY: "{api_key}", PLUGIN_ENGINE_ORDERS: text },
    path: "/v1",
    startTimeoutMs: START_TIMEOUT_MS,
  };
}
