import { parentPort, workerData } from "node:worker_threads";
import {
  openStageLibrary,
  StageModel,
  type StageOptions,
  type StageRow,
} from "@heddle/engines/shards/stage-model";

// A thread with one stage of a model.

/** Rows to decode, with those of the stage before where there is one. */
export interface StageWork {
  readonly rows: readonly StageRow[];
  readonly hidden: Float32Array | undefined;
}

/** Rows for the next stage; or of the last one the greedy tokens. */
export interface StageResult {
  readonly hidden: Float32Array | undefined;
  readonly tokens: readonly number[];
}

const options = workerData as StageOptions;
const stage = StageModel.open(openStageLibrary(), options);
const port = parentPort!;
port.on("message", (work: StageWork | "close") => {
  if (work === "close") {
    // The end of the thread does not free the library's memory.
    stage.close();
    port.close();
    return;
  }
  const { rows, hidden } = work;
  stage.decode(rows, hidden);
  if (options.isLast) {
    const outputs = rows.filter(({ output }) => output).length;
    port.postMessage({ hidden: undefined, tokens: greedy(stage, outputs) } satisfies StageResult);
    return;
  }
  const next = stage.hidden(rows.length).slice();
  const result: StageResult = { hidden: next, tokens: [] };
  port.postMessage(result, [next.buffer as ArrayBuffer]);
});
port.postMessage("ready");

function greedy({ vocabularySize }: StageModel, outputs: number): number[] {
  const logits = outputs === 0 ? new Float32Array() : stage.logits(outputs);
  return Array.from({ length: outputs }, (_, output) => {
    const row = logits.subarray(output * vocabularySize, (output + 1) * vocabularySize);
    return row.reduce((best, value, token) => (value > row[best]! ? token : best), 0);
  });
}
