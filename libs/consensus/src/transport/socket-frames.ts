import type { Socket } from "node:net";
import { type Frame, FrameReader } from "./frames.ts";

/**
 * The frames of a socket, by `next` with back-pressure or by `forEach` in the socket's own data event.
 * They end with the socket, and fail with its error or with that of a frame.
 */
export class SocketFrames implements AsyncIterator<Frame, undefined> {
  readonly reader = new FrameReader();
  readonly #socket: Socket;
  #waiting: Frame[] = [];
  #asked: PromiseWithResolvers<IteratorResult<Frame, undefined>> | undefined;
  #onFrame: ((frame: Frame) => void) | undefined;
  /** Set at the end; without an error it was the other side's wish. */
  #end: { readonly error: Error | undefined } | undefined;
  readonly #ended = Promise.withResolvers<void>();

  constructor(socket: Socket) {
    this.#socket = socket;
    this.#ended.promise.catch(() => undefined);
    socket.on("data", (piece: Buffer) => this.#take(piece));
    socket.once("end", () => this.#finish(undefined));
    socket.once("error", (error) => this.#finish(error));
    const cut = () => this.#finish(socket.errored ?? new Error("the connection was cut"));
    socket.once("close", cut);
    if (socket.destroyed) cut();
  }

  next(): Promise<IteratorResult<Frame, undefined>> {
    const frame = this.#waiting.shift();
    if (frame) return Promise.resolve({ done: false, value: frame });
    if (this.#end?.error) return Promise.reject(this.#end.error);
    if (this.#end) return Promise.resolve({ done: true, value: undefined });
    this.#asked = Promise.withResolvers();
    this.#socket.resume();
    return this.#asked.promise;
  }

  /** Hands over every frame from now on; resolves at the end, rejects with what went wrong. */
  forEach(onFrame: (frame: Frame) => void): Promise<void> {
    this.#onFrame = onFrame;
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#guard(() => {
      for (const frame of waiting) onFrame(frame);
    });
    this.#socket.resume();
    return this.#ended.promise;
  }

  #take(piece: Buffer): void {
    this.#guard(() => {
      for (const frame of this.reader.push(piece)) this.#give(frame);
    });
  }

  #give(frame: Frame): void {
    if (this.#onFrame) {
      this.#onFrame(frame);
      return;
    }
    const asked = this.#asked;
    this.#asked = undefined;
    if (asked) asked.resolve({ done: false, value: frame });
    else this.#waiting.push(frame);
    if (!asked || this.#waiting.length > 0) this.#socket.pause();
  }

  /** What comes over the network may be wrong in any way: that ends the connection and no more. */
  #guard(work: () => void): void {
    try {
      if (!this.#end) work();
    } catch (error) {
      this.#finish(error as Error);
      this.#socket.destroy();
    }
  }

  #finish(error: Error | undefined): void {
    if (this.#end) return;
    this.#end = { error };
    if (error) this.#ended.reject(error);
    else this.#ended.resolve();
    const asked = this.#asked;
    if (error) asked?.reject(error);
    else asked?.resolve({ done: true, value: undefined });
  }
}
