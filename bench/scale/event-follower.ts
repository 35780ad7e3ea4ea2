import { readServerSentEvents, SILENCE_MS } from "@heddle/client/server-sent-events";
import { now } from "./simulated-task.ts";

/** One reader of GET /api/v1/events: job events with the time at which they arrived. */
export class EventFollower {
  /** From the entry of the log to the reader, ms. */
  readonly lagsMs: number[] = [];
  /** Keyed by job: when the event of that state came. */
  readonly runningMs = new Map<string, number>();
  readonly endedMs = new Map<string, number>();
  /** Jobs that ended otherwise than with success. */
  failed = 0;
  /** Why no more events come, where the stream has ended by itself. */
  fault: Error | undefined;
  readonly #closing: AbortController;
  readonly #done: Promise<void>;

  private constructor(body: ReadableStream<Uint8Array>, closing: AbortController) {
    this.#closing = closing;
    this.#done = this.#read(body)
      .then(() => new Error("the stream of events has ended"))
      .catch((error: Error) => error)
      .then((error) => {
        if (!closing.signal.aborted) this.fault = error;
      });
  }

  static async open(url: string, key: string): Promise<EventFollower> {
    const closing = new AbortController();
    const headers = { authorization: `Bearer ${key}`, accept: "text/event-stream" };
    const response = await fetch(`${url}/api/v1/events`, { headers, signal: closing.signal });
    if (!response.ok) throw new Error(`events: ${response.status} ${await response.text()}`);
    return new EventFollower(response.body!, closing);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#done;
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    for await (const { data } of readServerSentEvents(body, SILENCE_MS)) {
      if (data !== "") this.#take(JSON.parse(data) as JobEvent, now());
    }
  }

  #take({ type, job_id, state, at }: JobEvent, atMs: number): void {
    if (type !== "job") return;
    this.lagsMs.push(atMs - Date.parse(at));
    if (state === "running") this.runningMs.set(job_id, atMs);
    const isEnded = state === "succeeded" || state === "failed" || state === "cancelled";
    if (!isEnded) return;
    this.endedMs.set(job_id, atMs);
    if (state !== "succeeded") this.failed += 1;
  }
}

interface JobEvent {
  readonly type: string;
  readonly job_id: string;
  readonly state: string;
  readonly at: string;
}
