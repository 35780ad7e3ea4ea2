import { createHash } from "node:crypto";
import { basename } from "node:path";

/** The longest model name made here: file names elsewhere contain it. */
const MAX_NAME_CHARS = 120;

/**
 * The model id for a file: its name without `.gguf` and without accents, with a dash for each run
 * of invalid characters. A name that is too long is cut and made distinct by its hash.
 */
export function modelIdOf(path: string): string {
  const name = basename(path, ".gguf").normalize("NFKD").replace(/\p{M}/gu, "");
  const isPlain = /^[A-Za-z0-9._-]*$/.test(name);
  const dashed = isPlain ? name : name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/-{2,}/g, "-");
  const trimmed = dashed.replace(/^[^A-Za-z0-9]+/, "");
  const id = (isPlain ? trimmed : trimmed.replace(/-+$/, "")) || "model";
  if (id.length <= MAX_NAME_CHARS) return id;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, 8);
  return `${id.slice(0, MAX_NAME_CHARS)}-${hash}`;
}
