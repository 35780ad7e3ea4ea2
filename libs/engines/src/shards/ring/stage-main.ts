import { toAppError } from "@heddle/base/errors";
import { BATCH_TOKENS } from "../../llama/engine-thread/batch.ts";
import { openStageLibrary, StageModel } from "../stage-model.ts";
import { FramePipe } from "./frame-pipe.ts";
import { STAGE_FD, type StageMessage, type StageStart } from "./stage-protocol.ts";
import { StageRunner } from "./stage-runner.ts";

// The process of a stage that is not the last. It only computes: after its start it never returns to
// its event loop, and it ends when its parent closes the stream of frames.

process.once("message", (start: StageStart) => {
  try {
    const options = { ...start, isLast: false, batchTokens: BATCH_TOKENS };
    const library = openStageLibrary(start.device);
    const runner = new StageRunner(StageModel.open(library, options));
    say({ kind: "ready", device: library.devices.name }, () => serve(runner));
  } catch (error) {
    const { code, message } = toAppError(error);
    say({ kind: "failed", code, message }, end);
  }
});
process.once("disconnect", end);

function serve(runner: StageRunner): void {
  const pipe = new FramePipe(STAGE_FD);
  for (let frame = pipe.read(); frame; frame = pipe.read()) {
    const answer = runner.run(frame);
    if (answer) pipe.write(answer);
  }
  end();
}

function say(message: StageMessage, then: () => void): void {
  if (process.connected) process.send?.(message, then);
  else end();
}

/** An ordinary exit would run the destructors of native code. */
function end(): void {
  process.kill(process.pid, "SIGKILL");
}
