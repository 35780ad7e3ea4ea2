import { AppError, toAppError } from "@heddle/base/errors";
import {
  EXIT_CORRUPT,
  EXIT_FAILED,
  EXIT_SERVER_LOST,
  EXIT_UNUSABLE,
  EXIT_UNWRITABLE,
} from "@heddle/contracts/trainer/exit-codes";

/** The system refuses to write a file of the task; the message names the file and the cause. */
export class UnwritableFile extends AppError {
  constructor(what: string, cause: Error) {
    super("unavailable", `cannot write ${what}: ${cause.message}; is the disk full?`, { cause });
  }
}

/** All checkpoints of the job are damaged: a further attempt would fail in the same way. */
export class DamagedCheckpoints extends AppError {}

/** The exit code of a trainer that fails with this error. */
export function exitCodeOf(error: unknown): number {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AppError && at.code === "shard_unavailable") return EXIT_SERVER_LOST;
  }
  if (error instanceof DamagedCheckpoints) return EXIT_CORRUPT;
  if (error instanceof UnwritableFile) return EXIT_UNWRITABLE;
  return toAppError(error).code === "invalid_value" ? EXIT_UNUSABLE : EXIT_FAILED;
}
