import type {
  EngineEvent,
  InputReading,
  ReadRequest,
  SubmitOptions,
} from "@heddle/contracts/engine";
import { LiveWork } from "./live-work.ts";

/** A request for the reading of an input: it has no sequence. */
export class LiveReading extends LiveWork {
  readonly request: ReadRequest;
  readonly usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  readonly isDone = false;

  constructor(id: number, request: ReadRequest, options: SubmitOptions) {
    super(id, 0, options);
    this.request = request;
  }

  /** All events of the request. */
  reported(reading: InputReading): EngineEvent[] {
    const { id, usage } = this;
    return [...this.start(0, 0), { type: "reading", id, ...reading }, { type: "done", id, usage }];
  }

  isOpen(): boolean {
    return false;
  }
}
