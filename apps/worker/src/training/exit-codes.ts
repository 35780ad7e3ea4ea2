import { AppError } from "@heddle/base/errors";

/** A trainer's exit code where a parameter server was lost: EX_TEMPFAIL of sysexits.h. */
export const EXIT_SERVER_LOST = 75;

/** With what a trainer ends that failed so. */
export function exitCodeOf(error: unknown): number {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AppError && at.code === "shard_unavailable") return EXIT_SERVER_LOST;
  }
  return 1;
}
