import { closeSync, constants, openSync, writeSync } from "node:fs";
import { Socket } from "node:net";

const LOST_MARK =
  "\n[heddle: a part of this output could not be written to the worker's disk, and is lost]\n";

/**
 * Copies one stream of a program to its file, byte by byte, and to the container's own stream for
 * `kubectl logs`. A named pipe, since a program may open /dev/stdout, which it could not if that
 * were a socket. After a failed write output is skipped and marked once the file accepts it.
 */
export class ProgramOutput {
  /** The program's end. */
  readonly writeEnd: number;
  /** Resolves when the last writer has closed it. */
  readonly ended: Promise<void>;
  readonly #file: number;
  readonly #own: number;
  #isLossy = false;

  constructor(pipe: string, file: string, own: 1 | 2) {
    this.#own = own;
    this.#file = openSync(
      file,
      constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW,
      0o600,
    );
    // Opening one end alone would wait for the other.
    const both = openSync(pipe, constants.O_RDWR);
    const readEnd = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    this.writeEnd = openSync(pipe, constants.O_WRONLY);
    closeSync(both);
    const socket = new Socket({ fd: readEnd, readable: true, writable: false });
    socket.on("data", (piece: Buffer) => this.#take(piece));
    this.ended = new Promise((resolve) => socket.once("close", () => resolve()));
  }

  #take(piece: Buffer): void {
    try {
      if (this.#isLossy) writeAll(this.#file, Buffer.from(LOST_MARK));
      this.#isLossy = false;
      writeAll(this.#file, piece);
    } catch {
      this.#isLossy = true;
    }
    try {
      writeAll(this.#own, piece);
    } catch {
      // The container's log is a copy for people.
    }
  }
}

function writeAll(file: number, bytes: Buffer): void {
  for (let at = 0; at < bytes.byteLength; ) at += writeSync(file, bytes, at);
}
