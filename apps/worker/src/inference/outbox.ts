import type { EngineEvent, TokenLogprob } from "@heddle/contracts/engine";

/** A folded delta of so many tokens is closed and a further one begun, so that frames stay small. */
const maxFoldedTokens = 4_096;

/** An event that waits; the deltas among them grow while they wait. */
type Waiting =
  | Exclude<EngineEvent, { type: "delta" }>
  | {
      type: "delta";
      id: number;
      choice: number;
      text: string;
      tokens: number;
      logprobs?: TokenLogprob[] | undefined;
    };

/**
 * The events of one request on their way to a master, which takes as many as it has granted. While
 * the window is spent, deltas of a choice fold into one, so that what waits is the text itself and
 * at most a few events a choice; nothing is lost and order within a choice is kept.
 */
export class Outbox {
  #credits: number;
  #waiting: Waiting[] = [];
  #abandoned = false;
  /** Where the delta of a choice stands in `#waiting`, while it may still grow. */
  readonly #open = new Map<number, number>();

  constructor(window: number) {
    this.#credits = window;
  }

  grant(events: number): void {
    this.#credits += events;
  }

  /** Drops all but the last event, which needs no credit: the master only awaits the end. */
  abandon(): void {
    this.#abandoned = true;
    this.#waiting = this.#waiting.filter((event) => isLast(event));
    this.#open.clear();
    this.#credits = Number.POSITIVE_INFINITY;
  }

  push(event: EngineEvent): void {
    if (this.#abandoned && !isLast(event)) return;
    if (event.type !== "delta") {
      if (event.type === "finish") this.#open.delete(event.choice);
      this.#waiting.push(event);
      return;
    }
    const index = this.#open.get(event.choice);
    const open = index === undefined ? undefined : this.#waiting[index];
    if (open?.type === "delta" && open.tokens + event.tokens <= maxFoldedTokens) {
      open.text += event.text;
      open.tokens += event.tokens;
      if (event.logprobs) {
        open.logprobs ??= [];
        open.logprobs.push(...event.logprobs);
      }
      return;
    }
    this.#open.set(event.choice, this.#waiting.length);
    this.#waiting.push({ ...event, logprobs: event.logprobs && [...event.logprobs] });
  }

  /** The events that may be sent now. */
  take(): readonly EngineEvent[] {
    if (this.#credits <= 0 || this.#waiting.length === 0) return [];
    const taken = this.#waiting.splice(0, Math.min(this.#credits, this.#waiting.length));
    this.#credits -= taken.length;
    for (const [choice, index] of this.#open) {
      if (index < taken.length) this.#open.delete(choice);
      else this.#open.set(choice, index - taken.length);
    }
    return taken;
  }
}

/** Whether the event is the last of its request. */
export function isLast(event: EngineEvent): boolean {
  return event.type === "done" || event.type === "failed";
}
