import { runMaster } from "../dist/run-master.js";
import { ListedNodes } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";

/** The master's whole process, with a scripted dispatch in place of attached workers. */
await runMaster(process.argv.slice(2), ({ server }) => {
  const dispatch = new ScriptedDispatch();
  dispatch.script.tokenDelayMs = Number(process.env["SCRIPT_TOKEN_DELAY_MS"] ?? 0);
  return {
    dispatch,
    directory: new ListedNodes(),
    grpcAddress: server.address,
    stats: () => ({ queued: 0, started: 0, retries: 0, overloaded: 0, workerLost: 0 }),
    close: () => {},
  };
});
