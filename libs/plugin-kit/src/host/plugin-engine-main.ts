import { createServer } from "node:http";
import { loadPlugin } from "../loading/load-plugin.ts";
import { pluginEnvironment } from "./child-flags.ts";
import type { EngineOrders } from "./engine-command.ts";
import { EngineServer } from "./engine-server.ts";
import { guardSignals } from "./own-signals.ts";

// The process of one engine of a plugin. A worker starts it, asks it, and ends it.

const [port = "", modelFile = ""] = process.argv.slice(2);
const { PLUGIN_ENGINE_KEY: apiKey = "", PLUGIN_ENGINE_ORDERS: orders = "", ...env } = process.env;
const { entry, engine } = JSON.parse(Buffer.from(orders, "base64").toString()) as EngineOrders;
process.env = pluginEnvironment(env);
guardSignals(entry.processes);

const log = (message: string) => void process.stderr.write(`${message}\n`);
const { registry } = await loadPlugin(entry, { kind: "worker", log });
const found = registry.engines.get(engine);
if (!found) throw new Error(`the plugin has no engine ${engine}`);
const server = new EngineServer(found, { apiKey, modelFile: modelFile || undefined });
createServer((request, reply) => void server.serve(request, reply)).listen(
  Number(port),
  "127.0.0.1",
);
