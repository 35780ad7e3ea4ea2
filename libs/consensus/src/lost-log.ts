import { AppError } from "@heddle/base/errors";

/**
 * What a member is refused with whose log is gone while its identity is there: it may have voted,
 * and acknowledged entries, under its id.
 */
export function lostLog(directory: string): AppError {
  const message = `${directory} has an identity but no log: its content was lost. Empty the directory and start again, and this master joins its group anew.`;
  return new AppError("server_error", message);
}
