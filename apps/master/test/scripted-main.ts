import { runMaster } from "../dist/run-master.js";
import type { ClusterLink, ClusterLinkOptions } from "../src/nodes/cluster-link.ts";
import { ListedNodes } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";

/** SIGUSR2 blocks the main thread for this long, as a flood of requests would. */
const blockedMs = 4_000;
process.on("SIGUSR2", () => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockedMs);
});

/** In upgrade tests this build runs as one that supports only older cluster versions. */
const newest = process.env["HEDDLE_TEST_NEWEST_VERSION"];

function startScriptedLink({ server }: ClusterLinkOptions): ClusterLink {
  const dispatch = new ScriptedDispatch();
  dispatch.script.tokenDelayMs = Number(process.env["SCRIPT_TOKEN_DELAY_MS"] ?? 0);
  return {
    dispatch,
    directory: new ListedNodes(),
    grpcAddress: server.address,
    stats: () => ({ queued: 0, started: 0, retries: 0, overloaded: 0, workerLost: 0 }),
    close: () => {},
  };
}

/** The master's whole process, with a scripted dispatch instead of attached workers. */
await runMaster(process.argv.slice(2), startScriptedLink, newest ? Number(newest) : undefined);
