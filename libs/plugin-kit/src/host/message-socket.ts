import type { Socket } from "node:net";
import { valueFrame, valueFrames } from "@heddle/base/frames/value-frames";

/** Of one message, and of all that wait until the other side reads them. */
const MAX_BYTES = 64 * 2 ** 20;

/**
 * Messages between a process and that of its plugin. Node's own channel would end this process
 * where a plugin writes to its descriptor: here that is a fault of the plugin.
 */
export class MessageSocket<Received, Sent> {
  onMessage: (message: Received) => void = () => undefined;
  /** What came is no message; nothing more is read. */
  onFault: (error: Error) => void = () => undefined;
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    const frames = valueFrames<Received>((message) => this.onMessage(message), MAX_BYTES);
    socket.on("data", (bytes: Buffer) => {
      try {
        frames.push(bytes);
      } catch (error) {
        socket.destroy();
        this.onFault(error as Error);
      }
    });
    // The end of the other process says it.
    socket.on("error", () => undefined);
  }

  /** The other side does not read what it is sent. */
  get isFull(): boolean {
    return this.#socket.writableLength > MAX_BYTES;
  }

  send(message: Sent): void {
    if (this.#socket.writable) this.#socket.write(valueFrame(message));
  }
}
