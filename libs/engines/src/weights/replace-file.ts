import { randomUUID } from "node:crypto";
import { rename, writeFile } from "node:fs/promises";

/** Another process sees the old content or the new. */
export async function replaceFile(path: string, content: string | Uint8Array): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  await writeFile(temporary, content, { flush: true });
  await rename(temporary, path);
}
