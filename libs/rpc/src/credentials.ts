import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServerListener,
} from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { toStatus } from "./status.ts";

/** Probes carry no credentials; these paths tell nothing but that the process serves. */
const publicPrefix = "/grpc.health.v1.Health/";

/** The metadata that every call between nodes carries. */
export function tokenMetadata(clusterToken: string): Metadata {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${clusterToken}`);
  return metadata;
}

/**
 * Refuses every call that lacks the cluster token, before its first message is read. The comparison
 * takes the same time whatever the token: digests of equal length are compared.
 */
export function requireToken(clusterToken: string): ServerInterceptor {
  const expected = digest(`Bearer ${clusterToken}`);
  return (method, call) => {
    const isPublic = method.path.startsWith(publicPrefix);
    const listener: ServerListener = {
      onReceiveMetadata: (metadata, next) => {
        const given = metadata.get("authorization")[0] ?? "";
        if (isPublic || timingSafeEqual(digest(String(given)), expected)) next(metadata);
        else call.sendStatus(toStatus(refusal()));
      },
    };
    return new ServerInterceptingCall(call, { start: (next) => next(listener) });
  };
}

/** Reads the token that the nodes of a cluster share; surrounding white space does not count. */
export function readClusterToken(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (cause) {
    throw new AppError(
      "invalid_value",
      `cannot read the cluster token file ${path}: copy it from a master's data directory`,
      { cause },
    );
  }
  if (text.length >= 16) return text;
  throw new AppError(
    "invalid_value",
    `the cluster token in ${path} has ${text.length} characters: it needs at least 16`,
  );
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function refusal(): AppError {
  return new AppError(
    "invalid_api_key",
    "the call carries no valid cluster token: start the node with the token file of its masters",
  );
}
