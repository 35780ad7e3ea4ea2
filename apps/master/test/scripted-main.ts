import { runMaster } from "../dist/run-master.js";
import { DEPLOYMENT, ListedNodes, MODEL } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";

/** The master's whole process, with a scripted dispatch in place of attached workers. */
await runMaster(process.argv.slice(2), {
  startClusterLink: async () => {
    const dispatch = new ScriptedDispatch();
    dispatch.script.tokenDelayMs = Number(process.env["SCRIPT_TOKEN_DELAY_MS"] ?? 0);
    return {
      dispatch,
      directory: new ListedNodes(),
      grpcAddress: "127.0.0.1:1",
      close: async () => {},
    };
  },
  profileModels: () => [{ model: MODEL, deployment: DEPLOYMENT }],
});
