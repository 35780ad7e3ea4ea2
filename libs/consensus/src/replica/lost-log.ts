import { AppError } from "@heddle/base/errors";

/**
 * The error of a member whose log is gone while its identity is there: it may have voted, and
 * acknowledged entries, under its id.
 */
export function lostLog(directory: string): AppError {
  const message = `${directory} has an identity but no log: its content was lost. Empty the directory and start again, and this master joins its group again.`;
  return new AppError("server_error", message);
}

/** The error of a member whose log does not continue where its newest snapshot ends. */
export function logGap(directory: string, snapshot: number, first: number): AppError {
  const message = `the log in ${directory}/wal begins with entry ${first}, but the snapshot before it ends at entry ${snapshot}: its first segment is gone, and acknowledged entries with it. Keep the files if you want to look into it; empty the directory and start again, and this master joins its group again.`;
  return new AppError("server_error", message);
}

/**
 * The error that ends a member which receives a commit index beyond its log: it lost acknowledged entries.
 */
export function shortLog(
  directory: string,
  { commit, last }: { readonly commit: number; readonly last: number },
  cause: unknown,
): AppError {
  const message = `the log in ${directory} ends at entry ${last}, but the leader knows that this master had entries up to ${commit}: its files lost what it had acknowledged. Empty the directory and start again, and this master joins its group again.`;
  return new AppError("server_error", message, { cause });
}
