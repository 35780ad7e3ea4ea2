import type { DynamicModule } from "@nestjs/common";
import { INFERENCE_DISPATCH } from "../dist/inference/dispatch/inference-port.js";
import { NODE_DIRECTORY } from "../dist/nodes/node-directory.js";
import { OrchestrationModule } from "../dist/orchestration/orchestration.module.js";
import { TasksModule } from "../dist/orchestration/tasks/tasks.module.js";
import { runMaster } from "../dist/run-master.js";
import { documentProbe } from "./document-probe.ts";
import { ListedNodes } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";

/** SIGUSR2 blocks the main thread for this long, as a flood of requests would. */
const blockedMs = 4_000;
process.on("SIGUSR2", () => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockedMs);
});

/** In upgrade tests this build runs as one that supports only older cluster versions. */
const newest = process.env["HEDDLE_TEST_NEWEST_VERSION"];
/** Events in a file. */
const segment = process.env["HEDDLE_TEST_EVENT_SEGMENT"];

class ScriptedCluster {}

function scriptedCluster(): DynamicModule {
  const dispatch = new ScriptedDispatch();
  dispatch.script.tokenDelayMs = Number(process.env["SCRIPT_TOKEN_DELAY_MS"] ?? 0);
  const providers = [
    { provide: NODE_DIRECTORY, useValue: new ListedNodes() },
    { provide: INFERENCE_DISPATCH, useValue: dispatch },
  ];
  return {
    module: ScriptedCluster,
    global: true,
    providers: process.env["HEDDLE_TEST_DOCUMENTS"] ? [...providers, documentProbe] : providers,
    exports: providers,
  };
}

/** The master's whole process, with a scripted dispatch instead of attached workers. */
await runMaster(process.argv.slice(2), [scriptedCluster(), OrchestrationModule, TasksModule], {
  newestVersion: newest ? Number(newest) : undefined,
  eventSegment: segment ? Number(segment) : undefined,
});
