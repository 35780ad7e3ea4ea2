import type { Duplex } from "node:stream";
import { FrameSplitter } from "./frame-splitter.ts";
import { frameParts, readFrame, STAGE_SAVES, STAGE_TAKES, type StageFrame } from "./stage-frame.ts";

/**
 * Gives one stage the cache of another one of the same blocks, part by part, while neither has other
 * frames. False where one of them cannot do it. Rejects where a stream closes, or an answer takes
 * longer than `silenceMs`.
 */
export async function moveCache(from: Duplex, to: Duplex, silenceMs: number): Promise<boolean> {
  for (let sequence = 0, at = 0; ; ) {
    const saved = await askStage(from, [savesFrame(sequence, at)], silenceMs);
    if (saved.status !== STAGE_TAKES) return false;
    const taken = await askStage(to, frameParts(saved), silenceMs);
    if (taken.status !== STAGE_TAKES) return false;
    const [bytes = 0, follow = 0, sequences = 0] = saved.rows;
    if (follow > 0) at += bytes;
    else if (sequences === 0) return true;
    else [sequence, at] = [sequence + 1, 0];
  }
}

function savesFrame(sequence: number, at: number): Uint8Array {
  const frame = { epoch: 0, step: 0, status: STAGE_SAVES, micros: 0, adapter: 0, scale: 0 };
  const rows = Int32Array.of(sequence, at, 0);
  const none = { changes: new Int32Array(0), hidden: new Float32Array(0) };
  return Buffer.concat(frameParts({ ...frame, ...none, rows, dtype: "f32" }));
}

/** The next frame that comes from the stage. */
function askStage(
  stage: Duplex,
  parts: readonly Uint8Array[],
  silenceMs: number,
): Promise<StageFrame> {
  const { promise, resolve, reject } = Promise.withResolvers<StageFrame>();
  const splitter = new FrameSplitter();
  const fail = () => reject(new Error("a stage is lost while its cache moves"));
  const onData = (bytes: Uint8Array) => {
    try {
      const [frame] = splitter.push(bytes);
      if (frame) resolve(readFrame(new Uint8Array(frame).buffer));
    } catch (error) {
      reject(error);
    }
  };
  const timer = setTimeout(fail, silenceMs).unref();
  stage.on("data", onData).once("close", fail).resume();
  if (stage.destroyed) fail();
  for (const part of parts) stage.write(part);
  return promise.finally(() => {
    clearTimeout(timer);
    stage.off("data", onData).off("close", fail).pause();
  });
}
