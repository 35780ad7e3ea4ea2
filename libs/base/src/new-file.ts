import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { AppError } from "./errors.ts";

/** Throws where there is such a file already (`conflict`), or no directory for it (`invalid_value`). */
export function checkNewFile(path: string): void {
  if (existsSync(path)) throw new AppError("conflict", `${path} exists. Give another file.`);
  const folder = dirname(path);
  if (existsSync(folder)) return;
  const message = `There is no directory ${folder}. Make it, or give a file elsewhere.`;
  throw new AppError("invalid_value", message);
}
