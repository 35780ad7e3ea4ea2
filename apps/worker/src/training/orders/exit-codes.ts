import { AppError, toAppError } from "@heddle/base/errors";

/** A trainer's exit code where a parameter server was lost: EX_TEMPFAIL of sysexits.h. */
export const EXIT_SERVER_LOST = 75;
/** Where the config or the data is no good, or training diverges: EX_DATAERR. */
export const EXIT_UNUSABLE = 65;
/** Where it fails in any other way that its last line tells, and a retry may mend: EX_SOFTWARE. */
export const EXIT_FAILED = 70;

/** Where no checkpoint of the job is whole: EX_NOINPUT. */
export const EXIT_CORRUPT = 66;

/** Where a file cannot be written: EX_IOERR. */
export const EXIT_UNWRITABLE = 74;

/** What a task needs to write the system does not take; the message says what, where and why. */
export class UnwritableFile extends AppError {
  constructor(what: string, cause: Error) {
    super("unavailable", `cannot write ${what}: ${cause.message}; is the disk full?`, { cause });
  }
}

/** All checkpoints that the job has are damaged: a further attempt would meet the same. */
export class DamagedCheckpoints extends AppError {}

/** With what a trainer ends that failed so. */
export function exitCodeOf(error: unknown): number {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AppError && at.code === "shard_unavailable") return EXIT_SERVER_LOST;
  }
  if (error instanceof DamagedCheckpoints) return EXIT_CORRUPT;
  if (error instanceof UnwritableFile) return EXIT_UNWRITABLE;
  return toAppError(error).code === "invalid_value" ? EXIT_UNUSABLE : EXIT_FAILED;
}
