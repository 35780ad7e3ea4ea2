import type { Duplex, Readable } from "node:stream";
import type { AppError } from "@heddle/base/errors";
import type { ChildMessage, ParentMessage } from "../protocol/child-protocol.ts";

/** An engine process as its owner reaches it, wherever it runs. */
export interface EngineLink {
  /** The PID of a process of this machine. */
  readonly pid: number | undefined;
  /** The bytes of its event frames. */
  readonly events: Readable;
  /** Where the frames of the other stages come and go, of one that is the last stage. */
  readonly stages: Duplex | undefined;
  /** A message to a process that is gone is lost. */
  send(message: ParentMessage): void;
  /** Ends the process at once. */
  kill(): void;
}

/** What an engine process reports besides its events. */
export interface EngineLinkListener {
  message(message: ChildMessage): void;
  /** A piece of what native code wrote. */
  errorOutput(text: string): void;
  /** Why it will not run; `ended` follows. */
  failed(reason: AppError): void;
  /** The process is gone; called once, with the words that say how. */
  ended(how: string): void;
}

/** Begins an engine process; `hasStages` is whether other stages compute before it. */
export type EngineLauncher = (listener: EngineLinkListener, hasStages: boolean) => EngineLink;
