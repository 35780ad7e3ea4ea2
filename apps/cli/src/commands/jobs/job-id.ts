import { AppError } from "@heddle/base/errors";
import type { Heddle } from "@heddle/client/heddle";

/**
 * The id of the job with this id, or of the newest one with this name. Throws an AppError
 * `not_found` where no job has the name.
 */
export async function resolveJobId(heddle: Heddle, given = ""): Promise<string> {
  if (given.startsWith("job_")) return given;
  const { data } = await heddle.jobs.list({ name: given, limit: 1 }).page();
  if (data[0]) return data[0].id;
  const message = `No job has the id or name ${given}. \`heddle jobs list\` shows them.`;
  throw new AppError("not_found", message);
}
