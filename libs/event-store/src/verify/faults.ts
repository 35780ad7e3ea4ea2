import { toAppError } from "@heddle/base/errors";

/**
 * What is wrong with a log or an export.
 *
 * - `malformed`: it is not in its format.
 * - `key`: no trusted key signed a checkpoint, or not the one that is shown.
 * - `changed`: entries or hashes are not those of a checkpoint.
 * - `order`: entries are missing, repeated or exchanged.
 * - `truncated`: it ends before the entries that it names or that a checkpoint covers.
 * - `unfinished`: its last write is not whole, as after a power cut, or was changed.
 * - `fork`: two signed checkpoints have different histories.
 * - `uncovered`: a given checkpoint cannot be compared with it.
 */
export type FaultKind =
  | "malformed"
  | "key"
  | "changed"
  | "order"
  | "truncated"
  | "unfinished"
  | "fork"
  | "uncovered";

export interface LogFault {
  readonly kind: FaultKind;
  readonly message: string;
}

/** Further ones are counted only. */
const MAX_FAULTS = 100;

/** Gathers what is wrong, in the order in which it is found. */
export class FaultList {
  readonly #faults: LogFault[] = [];
  count = 0;

  add(kind: FaultKind, message: string): void {
    this.count++;
    if (this.#faults.length < MAX_FAULTS) this.#faults.push({ kind, message });
  }

  /** The result of the work; undefined with a fault where it throws. */
  try<T>(kind: FaultKind, work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      const { code, message } = toAppError(error);
      this.add(code === "permission_denied" ? "key" : kind, message);
      return undefined;
    }
  }

  get faults(): readonly LogFault[] {
    return this.#faults;
  }
}
