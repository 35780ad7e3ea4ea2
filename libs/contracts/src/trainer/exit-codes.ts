/** Exit code for a lost parameter server: EX_TEMPFAIL of sysexits.h. */
export const EXIT_SERVER_LOST = 75;
/** For invalid config or data, or diverging training: EX_DATAERR. */
export const EXIT_UNUSABLE = 65;
/**
 * Any other failure; its reason is the last line on standard error, and a retry may help:
 * EX_SOFTWARE.
 */
export const EXIT_FAILED = 70;
/** For a job without an intact checkpoint: EX_NOINPUT. */
export const EXIT_CORRUPT = 66;
/** For a file that cannot be written: EX_IOERR. */
export const EXIT_UNWRITABLE = 74;

/** Prefix of the line on standard error with a failure's reason. */
export const FAILURE_PREFIX = "the task failed (";
