/**
 * Detects that this process was paused long enough for the others to elect a new leader.
 * Until a read index round after the pause confirms the commit index, its state counts as stale.
 */
export class StaleReadGuard {
  readonly #longTicks: number;
  readonly #ask: () => Promise<void>;
  #lasts = false;
  /** The question that is under way. */
  #asked: Promise<void> | undefined;

  /** Others elect a leader after `electionTicks` of silence at the least. */
  constructor(
    { electionTicks, heartbeatTicks }: Record<"electionTicks" | "heartbeatTicks", number>,
    ask: () => Promise<void>,
  ) {
    this.#longTicks = Math.max(1, electionTicks - heartbeatTicks);
    this.#ask = ask;
  }

  get lasts(): boolean {
    return this.#lasts;
  }

  /** This many ticks have passed at once, in which this member did not run. */
  tick(elapsedTicks: number): void {
    const isNew = elapsedTicks >= this.#longTicks;
    this.#lasts ||= isNew;
    // Requests from before the pause may have been answered before it, too.
    if (!this.#lasts || (this.#asked && !isNew)) return;
    const asked = this.#ask();
    this.#asked = asked;
    asked.then(
      () => this.#answered(asked, false),
      () => this.#answered(asked, true),
    );
  }

  /** After a failed round the next tick starts another one. */
  #answered(asked: Promise<void>, lasts: boolean): void {
    if (this.#asked !== asked) return;
    this.#asked = undefined;
    this.#lasts = lasts;
  }
}
