import { toAppError } from "@heddle/base/errors";

/** A trainer's exit code where a parameter server was lost: EX_TEMPFAIL of sysexits.h. */
export const EXIT_SERVER_LOST = 75;
/** Where the config or the data is no good, or training diverges: EX_DATAERR. */
export const EXIT_UNUSABLE = 65;

/** What libs/parameters says of a server that is away, or was started anew without its shards. */
const LOST_SERVER = /is away for \d+ ms|this server has no shard|the job's shards are not there/;

/** With what a trainer ends that failed so. */
export function exitCodeOf(error: unknown): number {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const { code, message } = toAppError(at);
    const isPassing = code === "unavailable" || code === "not_found";
    if (isPassing && LOST_SERVER.test(message)) return EXIT_SERVER_LOST;
  }
  return toAppError(error).code === "invalid_value" ? EXIT_UNUSABLE : 1;
}
