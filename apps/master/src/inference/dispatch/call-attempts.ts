import type { ErrorCode } from "@heddle/base/errors";
import type { EngineFailure } from "@heddle/contracts/engine";

/** Attempts per call before its first event, by failures or refusals. */
const MAX_FAILURES = 3;
const MAX_REFUSALS = 8;
/** The replica differs from its last report: it is skipped until the next one. */
const refusalCodes: ReadonlySet<ErrorCode> = new Set([
  "overloaded",
  "unavailable",
  "model_loading",
  "model_not_found",
]);

/** What an attempt needs to know of its replica. */
interface AttemptedReplica {
  readonly node: string;
  readonly holder: string;
  readonly reports: number;
}

interface FailedAttempt {
  readonly failure: EngineFailure;
  readonly node: string;
}

/**
 * The failed attempts of one call before its first event, and the replicas that they exclude:
 *
 * - `worker_lost` excludes none: the connection broke, and a ready replica has a new one.
 * - A refusal excludes the replica until its node sends another report.
 * - `engine_failed` excludes the replica for good: a restarted engine has another holder, and one
 *   with the same holder by then has not crashed. `answer_failed` does too: it would fail again.
 */
export class CallAttempts {
  #failures = 0;
  #refusals = 0;
  #last: FailedAttempt | undefined;
  /** Keyed by holder. */
  readonly #excluded = new Map<
    string,
    { readonly reports: number; readonly failed: FailedAttempt | undefined }
  >();

  /** The latest failure; undefined before the first. */
  get last(): FailedAttempt | undefined {
    return this.#last;
  }

  /** `reports` is the present count of the node. Returns whether another attempt may help. */
  onFailure({ node, holder, ...sent }: AttemptedReplica, failure: EngineFailure, reports: number) {
    const failed: FailedAttempt = { failure, node };
    this.#last = failed;
    if (failure.code === "worker_lost") this.#failures += 1;
    else if (failure.code === "engine_failed" || failure.code === "answer_failed") {
      this.#failures += 1;
      // An engine that answers runs. Of another, the next report may be older than its failure.
      const shown = failure.code === "answer_failed" ? -1 : reports + 1;
      this.#excluded.set(holder, { failed, reports: shown });
    } else if (refusalCodes.has(failure.code)) {
      this.#refusals += 1;
      this.#excluded.set(holder, { failed: undefined, reports: sent.reports });
    } else return false;
    return this.#failures < MAX_FAILURES && this.#refusals < MAX_REFUSALS;
  }

  mayTry({ holder, reports }: AttemptedReplica): boolean {
    const excluded = this.#excluded.get(holder);
    return !excluded || (!excluded.failed && reports > excluded.reports);
  }

  /**
   * The failure of a call that failed on every ready engine, once later reports show that those
   * engines run. No restart will then produce another replica.
   */
  finalFailure(ready: readonly AttemptedReplica[]): FailedAttempt | undefined {
    let last: FailedAttempt | undefined;
    for (const { holder, reports } of ready) {
      const excluded = this.#excluded.get(holder);
      if (!excluded?.failed || reports <= excluded.reports) return undefined;
      last = excluded.failed;
    }
    return last;
  }
}
