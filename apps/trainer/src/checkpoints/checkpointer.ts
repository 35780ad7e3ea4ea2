import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { ParameterClient, Parameters, PushTerms } from "@heddle/training/parameter-client";
import type { RankState, RoundReport } from "@heddle/training/training-loop";
import type { FragmentExchange } from "@heddle/training/weave/fragment-exchange";
import { forgetOldRankStates, forgetRankState, saveRankState } from "./rank-state.ts";

/**
 * A loop that waits this long for others takes its checkpoint while it waits: they may have left.
 */
const STUCK_MS = 1_000;
const POLL_MS = 250;
/**
 * For how many rounds after a request the other ranks save their state. All ranks receive the
 * request at about the same time; rank 0, which may be a round ahead or behind, skips one round.
 */
const STATE_ROUNDS = 3;
/**
 * Where no rank waits for rank 0: how long another rank continues until rank 0 has the request too.
 */
const OTHERS_MS = 2_000;

/** A checkpointer's dependencies. */
export interface CheckpointerParts {
  readonly rank: number;
  readonly tasks: number;
  readonly directory: string;
  /** The number of latest checkpoints to keep. */
  readonly keep: number;
  readonly shards: {
    checkpoint(round: number): Promise<string>;
    nameAt(round: number): string;
    rounds(): Promise<number>;
  };
  /** Resolves when this rank's fragments in progress are in their shards. */
  readonly settle: () => Promise<void>;
  readonly log: Log;
  /** Rank 0's checkpoint of that name is durable, and contains this many rounds. */
  readonly onDurable: (name: string, round: number) => void;
  /** Another rank has saved its own state for the requested checkpoint: it may leave. */
  readonly onStateSaved: () => void;
}

/**
 * Takes checkpoints on request: rank 0 those of the shards, each rank its own state. The loop's
 * client goes through it, so that it knows when the loop waits.
 */
export class Checkpointer {
  readonly #parts: CheckpointerParts;
  #requested = false;
  #requestedAtMs = 0;
  /** Rounds that rank 0 skips before it takes the checkpoint. */
  #passing = 0;
  #statesLeft = 0;
  #waitingSinceMs: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #taking: Promise<void> | undefined;
  /** The latest checkpoint that was taken. */
  #durable: string | undefined;

  constructor(parts: CheckpointerParts) {
    this.#parts = parts;
  }

  /** From a signal: at the end of this round, or soon where the loop waits for others. */
  request(): void {
    if (!this.#requested) this.#passing = this.#parts.tasks > 1 ? 1 : 0;
    this.#requested = true;
    this.#requestedAtMs = performance.now();
    this.#statesLeft = STATE_ROUNDS;
    this.#timer ??= setInterval(() => this.#check(), POLL_MS);
  }

  /** Between a pull and the next push. */
  async atRoundEnd({ round, state }: RoundReport): Promise<void> {
    await this.#taking;
    const { rank } = this.#parts;
    if (rank === 0 && (!this.#requested || this.#passing-- > 0)) return;
    if (rank !== 0 && this.#statesLeft-- <= 0) return this.#reportSavedIfDue(OTHERS_MS);
    if (!(await this.#keepOwn(round, state)) || rank !== 0) return;
    await this.#wait(this.#parts.settle);
    await this.#taking;
    // It may have been taken during the wait.
    if (this.#requested) await this.#take(round);
  }

  /** Where it fails rank 0 takes no checkpoint, since one with its state is worth more. */
  async #keepOwn(round: number, state: RankState): Promise<boolean> {
    const { rank, directory, keep, shards, log } = this.#parts;
    try {
      await saveRankState(directory, shards.nameAt(round), rank, state);
      // Rank 0's states are removed with the checkpoints that it has named; the others name none.
      if (rank !== 0) await forgetOldRankStates(directory, rank, Math.max(1, keep) * STATE_ROUNDS);
      return true;
    } catch (error) {
      if (rank === 0) this.#answered();
      const { message } = toAppError(error);
      log.warn({}, rank === 0 ? `the checkpoint after round ${round} failed: ${message}` : message);
      return false;
    }
  }

  /**
   * Called after the loop, so that a failure afterwards loses nothing. The checkpoint is taken even
   * without this rank's own state: no later round needs it.
   */
  async atEnd({ round, state }: Pick<RoundReport, "round" | "state">): Promise<void> {
    await this.#taking;
    const { rank, directory, shards, log } = this.#parts;
    try {
      const held = Math.min(round, await shards.rounds());
      const name = shards.nameAt(held);
      if (name === this.#durable) return;
      const logFailure = (error: unknown) => log.warn({}, toAppError(error).message);
      await saveRankState(directory, name, rank, state).catch(logFailure);
      await this.#take(held);
    } catch (error) {
      log.warn({}, `no checkpoint could be taken at the end: ${toAppError(error).message}`);
    }
  }

  /** Stops the timer. */
  close(): void {
    clearInterval(this.#timer);
  }

  watch(client: ParameterClient): ParameterClient {
    return {
      pull: (into: Parameters) => this.#wait(() => client.pull(into)),
      push: (part: Parameters, terms: PushTerms) => this.#wait(() => client.push(part, terms)),
    };
  }

  watchExchange(exchange: FragmentExchange): FragmentExchange {
    const { shared, part } = exchange;
    return {
      shared,
      part,
      pullAll: () => this.#wait(() => exchange.pullAll()),
      begin: (fragment, round, terms) => exchange.begin(fragment, round, terms),
      finish: (fragment) => this.#wait(() => exchange.finish(fragment)),
      settle: () => this.#wait(() => exchange.settle()),
    };
  }

  /** Waits for others after the loop, and for a checkpoint that is taken meanwhile. */
  async whileWaiting(work: () => Promise<void>): Promise<void> {
    await this.#wait(work);
    await this.#taking;
  }

  async #wait<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#waitingSinceMs = performance.now();
    try {
      return await work();
    } finally {
      this.#waitingSinceMs = undefined;
    }
  }

  #check(): void {
    if (!this.#requested || this.#taking || this.#waitingSinceMs === undefined) return;
    if (performance.now() - this.#waitingSinceMs < STUCK_MS) return;
    if (this.#parts.rank !== 0) {
      this.#reportSavedIfDue(STUCK_MS);
      return;
    }
    this.#taking = this.#takeWhileWaiting().finally(() => {
      this.#taking = undefined;
    });
  }

  /**
   * Another rank than 0 reports when it may leave. It waits first, since rank 0 needs its parts
   * until the checkpoint is taken; then rank 0 has left, or the time has passed.
   */
  #reportSavedIfDue(afterMs: number): void {
    if (!this.#requested || performance.now() - this.#requestedAtMs < afterMs) return;
    this.#answered();
    this.#parts.onStateSaved();
  }

  async #takeWhileWaiting(): Promise<void> {
    const { shards, log } = this.#parts;
    try {
      await this.#take(await shards.rounds());
    } catch (error) {
      log.warn({}, `no checkpoint could be taken while waiting: ${toAppError(error).message}`);
    }
  }

  /** A failed checkpoint is logged, and the run continues: the previous one still counts. */
  async #take(round: number): Promise<void> {
    const { rank, directory, shards, log, onDurable } = this.#parts;
    this.#answered();
    try {
      this.#durable = await shards.checkpoint(round);
      onDurable(this.#durable, round);
    } catch (error) {
      log.warn({}, `the checkpoint after round ${round} failed: ${toAppError(error).message}`);
      const name = shards.nameAt(round);
      if (name !== this.#durable) await forgetRankState(directory, name, rank);
    }
  }

  #answered(): void {
    this.#requested = false;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
