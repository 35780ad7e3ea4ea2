/** A trainer's exit code where a parameter server was lost: EX_TEMPFAIL of sysexits.h. */
export const EXIT_SERVER_LOST = 75;
/** Where the config or the data is invalid, or training diverges: EX_DATAERR. */
export const EXIT_UNUSABLE = 65;
/** Any other failure; its reason is the last line on standard error, and a retry may help: EX_SOFTWARE. */
export const EXIT_FAILED = 70;
/** Where every checkpoint of the job is damaged: EX_NOINPUT. */
export const EXIT_CORRUPT = 66;
/** Where a file cannot be written: EX_IOERR. */
export const EXIT_UNWRITABLE = 74;

/** The line on standard error that gives the reason of a failure begins with this. */
export const FAILURE_PREFIX = "the trainer failed (";
