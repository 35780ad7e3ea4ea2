import { createHash } from "node:crypto";
import { mkdir, open, rename } from "node:fs/promises";
import { dirname } from "node:path";

const DIGEST_BYTES = 32;

/** Writes the bytes and their SHA-256 durably; a reader finds the whole file or none. */
export async function writeDigested(path: string, body: Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(`${path}.new`, "w", 0o600);
  try {
    await file.writeFile(body);
    await file.writeFile(createHash("sha256").update(body).digest());
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}

/** What was written into a file with these bytes; undefined where they are damaged. */
export function digestedBody(bytes: Buffer): Buffer | undefined {
  if (bytes.length <= DIGEST_BYTES) return undefined;
  const body = bytes.subarray(0, -DIGEST_BYTES);
  const digest = createHash("sha256").update(body).digest();
  return digest.equals(bytes.subarray(-DIGEST_BYTES)) ? body : undefined;
}
