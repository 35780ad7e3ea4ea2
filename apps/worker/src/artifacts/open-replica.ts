import { resolve } from "node:path";
import { S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";
import { DirectoryReplica } from "./directory-replica.ts";
import type { ArtifactReplica } from "./replica.ts";
import { S3Replica } from "./s3-replica.ts";

const FLAG = "--artifacts-replica";

/**
 * `text`: a directory, or `s3://BUCKET/PREFIX`. Throws an AppError that names a missing setting.
 */
export function openReplica(text: string, maxAgeMs: number, env = process.env): ArtifactReplica {
  if (!text.startsWith("s3://")) return new DirectoryReplica(resolve(text), maxAgeMs);
  return new S3Replica(new S3Client(readS3Settings(text, env, FLAG)), maxAgeMs);
}
