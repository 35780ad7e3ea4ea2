import type { EngineEvent, TokenLogprob } from "@heddle/contracts/engine";

/** A folded delta of this many tokens is closed and another begins, so that frames stay small. */
const MAX_FOLDED_TOKENS = 4_096;

/** A waiting event; deltas grow while they wait. */
type Waiting =
  | Exclude<EngineEvent, { type: "delta" }>
  | {
      type: "delta";
      id: number;
      choice: number;
      text: string;
      tokens: number;
      tokenIds?: number[] | undefined;
      isCut?: boolean | undefined;
      logprobs?: TokenLogprob[] | undefined;
    };

/**
 * The events of one request for a master, which grants credit for them. Without credit the deltas
 * of a choice are folded into one, so that memory is the text and a few events for each choice.
 * Nothing is lost, and the order within a choice is kept.
 */
export class Outbox {
  #credits: number;
  #waiting: Waiting[] = [];
  #abandoned = false;
  /** The index in `#waiting` of a choice's delta, while it may still grow. */
  readonly #open = new Map<number, number>();

  constructor(window: number) {
    this.#credits = window;
  }

  grant(events: number): void {
    this.#credits += events;
  }

  /** Drops all but the last event, which needs no credit: the master only waits for the end. */
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
    if (open?.type === "delta" && open.tokens + event.tokens <= MAX_FOLDED_TOKENS) {
      open.text += event.text;
      open.tokens += event.tokens;
      if (event.isCut) open.isCut = true;
      if (event.tokenIds) {
        open.tokenIds ??= [];
        open.tokenIds.push(...event.tokenIds);
      }
      if (event.logprobs) {
        open.logprobs ??= [];
        open.logprobs.push(...event.logprobs);
      }
      return;
    }
    this.#open.set(event.choice, this.#waiting.length);
    const { tokenIds, logprobs } = event;
    this.#waiting.push({
      ...event,
      tokenIds: tokenIds && [...tokenIds],
      logprobs: logprobs && [...logprobs],
    });
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
