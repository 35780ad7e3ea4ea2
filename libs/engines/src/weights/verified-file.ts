import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { replaceFile, SHARED_MODE } from "@heddle/base/replace-file";
import { openRegular } from "./regular-file.ts";

/** Says that a file of this size and modification time had this digest. */
interface Marker {
  readonly path: string;
  readonly sizeBytes: number;
  readonly mtimeMs: number;
  readonly sha256: string;
}

/**
 * True where the file has the digest. The marker proves it for an unchanged file; else the file is
 * hashed again and the marker renewed. Without a digest, only the marker shows that the file was pulled.
 */
export async function isVerified(
  path: string,
  markerPath: string,
  expected: { readonly sha256?: string | undefined; readonly sizeBytes?: number | undefined },
  signal: AbortSignal,
): Promise<boolean> {
  const now = await describe(path);
  if (!now) return false;
  if (expected.sizeBytes !== undefined && now.sizeBytes !== expected.sizeBytes) return false;
  const marker = await readMarker(markerPath);
  const unchanged =
    marker?.path === path && marker.sizeBytes === now.sizeBytes && marker.mtimeMs === now.mtimeMs;
  if (unchanged) return expected.sha256 === undefined || marker.sha256 === expected.sha256;
  if (expected.sha256 === undefined) return false;
  if ((await sha256Of(path, signal)) !== expected.sha256) return false;
  await markVerified(path, markerPath, expected.sha256);
  return true;
}

/** Writes the marker of a file whose digest is known. */
export async function markVerified(
  path: string,
  markerPath: string,
  sha256: string,
): Promise<void> {
  const now = await describe(path);
  if (!now) return;
  const marker: Marker = { path, ...now, sha256 };
  await replaceFile(markerPath, `${JSON.stringify(marker)}\n`, SHARED_MODE);
}

/** The file's SHA-256 in lower-case hexadecimal. */
export async function sha256Of(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const file = await openRegular(path);
  await pipeline(file.createReadStream({ highWaterMark: 1024 * 1024 }), hash, { signal });
  return hash.digest("hex");
}

async function describe(path: string) {
  try {
    const { size, mtimeMs } = await stat(path);
    return { sizeBytes: size, mtimeMs };
  } catch {
    // There is no such file.
    return undefined;
  }
}

async function readMarker(path: string): Promise<Marker | undefined> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as Marker;
  } catch {
    // Never marked, or cut off by a crash: the file is hashed again.
    return undefined;
  }
}
