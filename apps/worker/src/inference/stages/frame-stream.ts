import { Duplex } from "node:stream";
import type { ClientDuplexStream, ServerDuplexStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type {
  StageBytes,
  StageBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/StageBytes";

/** Bytes that wait on either side before the sender is held up. */
const HIGH_WATER_BYTES = 1024 * 1024;

export type StageCall =
  | ClientDuplexStream<StageBytes, StageBytes__Output>
  | ServerDuplexStream<StageBytes__Output, StageBytes>;

/** The frames of a Join stream, after its first messages, as a stream of bytes. */
export function frameStream(call: StageCall): Duplex {
  const frames = new Duplex({
    highWaterMark: HIGH_WATER_BYTES,
    read: () => call.resume(),
    write: (bytes: Uint8Array, _encoding, done) => {
      if (call.write({ frames: bytes })) done();
      else call.once("drain", done);
    },
    final: (done) => {
      call.end();
      done();
    },
    destroy: (error, done) => {
      if ("cancel" in call) call.cancel();
      else call.end();
      done(error);
    },
  });
  call.on("data", (message: StageBytes__Output) => {
    if (!frames.push(message.frames ?? null)) call.pause();
  });
  // Half of a ring is none.
  call.on("end", () => frames.destroy());
  call.on("close", () => frames.destroy());
  call.on("cancelled", () => frames.destroy());
  call.on("error", () => frames.destroy());
  return frames;
}

/** The first message of a Join stream. Rejects where it does not come in time. */
export function firstMessage(call: StageCall, timeoutMs: number): Promise<StageBytes__Output> {
  const { promise, resolve, reject } = Promise.withResolvers<StageBytes__Output>();
  const timer = setTimeout(
    () => reject(new AppError("unavailable", `no message was received within ${timeoutMs} ms`)),
    timeoutMs,
  );
  const onData = (message: StageBytes__Output) => {
    call.pause();
    resolve(message);
  };
  call.once("data", onData);
  call.once("error", reject);
  call.once("end", () => reject(new AppError("unavailable", "the stream ended at once")));
  return promise.finally(() => {
    clearTimeout(timer);
    call.off("data", onData);
    call.off("error", reject);
  });
}
