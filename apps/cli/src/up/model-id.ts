import { createHash } from "node:crypto";
import { basename } from "node:path";

/** The longest name that a model is given here: it becomes a part of file names elsewhere. */
const MAX_NAME_CHARS = 120;

/**
 * The model id for a file: its name without `.gguf`, its letters without their accents, and a dash
 * for each run of what no id may have. One that is too long is cut, and told apart by its hash.
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
