import { AppError } from "@heddle/base/errors";

/**
 * The version that all the pieces, or shards, of one fragment have. A server compares the pieces that
 * a shard is filled from, its caller the shards: neither sees all. Throws `invalid_value` for several.
 */
export function oneVersion(
  versions: readonly [number, ...number[]],
  checkpoint: string,
  where: "a shard" | "the shards",
): number {
  const found = [...new Set(versions)];
  if (found.length === 1) return versions[0];
  const message = `checkpoint ${checkpoint} has pieces of the versions ${found.join(" and ")} in ${where}`;
  throw new AppError("invalid_value", message);
}
