import { AppError } from "../errors.ts";

/** The AppError with which the promise rejects; another end is thrown. */
export async function rejectionOf(promise: Promise<unknown>): Promise<AppError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
