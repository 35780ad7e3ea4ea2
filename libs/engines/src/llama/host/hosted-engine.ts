import { extname } from "node:path";
import { type Duplex, PassThrough } from "node:stream";
import { fileURLToPath } from "node:url";
import { AppError, toAppError } from "@heddle/base/errors";
import type { EngineLink, EngineLinkListener } from "../parent/engine-link.ts";
import type { ParentMessage } from "../protocol/child-protocol.ts";
import { type HostFrame, linkFrame, linkFrames } from "./link-frames.ts";

/** A place outside of this machine's processes where engine-host-main runs one engine. */
export interface EngineHost {
  /** Resolves when the host has connected; rejects with an AppError where it will not. */
  readonly connected: Promise<Duplex>;
  /** Why it is gone, as far as the place knows. */
  lastWords(): string | undefined;
  /** Takes the place away; never rejects. */
  close(): Promise<void>;
}

/** The link to an engine process that such a host has started. */
export class HostedEngine implements EngineLink {
  readonly pid = undefined;
  readonly stages = undefined;
  readonly events = new PassThrough();
  readonly #host: EngineHost;
  readonly #listener: EngineLinkListener;
  readonly #frames = linkFrames<HostFrame>((frame) => this.#take(frame));
  #socket: Duplex | undefined;
  /** Sent before the host has connected. */
  #early: ParentMessage[] | undefined = [];
  #how: string | undefined;
  #isEnding = false;

  constructor(host: EngineHost, listener: EngineLinkListener) {
    this.#host = host;
    this.#listener = listener;
    host.connected.then(
      (socket) => this.#connect(socket),
      (error: unknown) => {
        listener.failed(toAppError(error));
        void this.#end();
      },
    );
  }

  send(message: ParentMessage): void {
    if (this.#early) this.#early.push(message);
    else if (this.#socket?.writable) this.#socket.write(linkFrame({ kind: "message", message }));
  }

  kill(): void {
    this.#how ??= "by signal SIGKILL";
    this.#socket?.destroy();
    void this.#end();
  }

  #connect(socket: Duplex): void {
    if (this.#isEnding) {
      socket.destroy();
      return;
    }
    this.#socket = socket;
    socket.on("data", (piece: Buffer) => this.#read(piece));
    socket.on("error", () => undefined); // `close` follows.
    socket.on("close", () => void this.#end());
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const message of early) this.send(message);
  }

  #read(piece: Buffer): void {
    try {
      this.#frames.push(piece);
    } catch (error) {
      this.#listener.failed(toAppError(error));
      this.kill();
    }
  }

  #take(frame: HostFrame): void {
    switch (frame.kind) {
      case "message":
        this.#listener.message(frame.message);
        return;
      case "events":
        this.events.write(frame.bytes);
        return;
      case "errorOutput":
        this.#listener.errorOutput(frame.text);
        return;
      case "failed":
        this.#listener.failed(new AppError("engine_failed", frame.message));
        return;
      case "ended":
        this.#how = frame.how;
        return;
      default:
        frame satisfies never;
    }
  }

  async #end(): Promise<void> {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.events.end();
    const words = this.#host.lastWords();
    await this.#host.close();
    this.#listener.ended(this.#how ?? words ?? "with its host");
  }
}

/** The command line of a host that connects to this socket. */
export function engineHostCommand(socketPath: string): readonly string[] {
  const url = new URL(`engine-host-main${extname(import.meta.url)}`, import.meta.url);
  return [process.execPath, fileURLToPath(url), socketPath];
}
